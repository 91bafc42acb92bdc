package explain

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tessera-gpu/tessera/cmd/tessera/claims"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/dryrun"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	r := request{}
	cmd := &cobra.Command{
		Use:   "explain pod/NAME",
		Short: "Show the node and devices that a pod would get, or why no node fits",
		Long: `Run the scheduler's code on the current state of the cluster, without scheduling anything, and list for every
node whether the pod fits, the devices that it would get, the capacity that later pods would lose, or what is
missing. If several nodes are chosen, the scheduler picks one of them at random.

The scheduler's configuration is read from the Deployment tessera-scheduler, or from a file.
Requires the read permissions of a scheduler (ClusterRole system:kube-scheduler).`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: flags.Complete(func(ctx context.Context, c *cluster.Cluster, _ string) ([]string, error) {
			pods, err := c.ListPods(ctx, c.Namespace)
			var names []string
			for _, p := range pods {
				names = append(names, "pod/"+p.Name)
			}
			return names, err
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.answer.Validate(); err != nil {
				return err
			}
			name, ok := strings.CutPrefix(args[0], "pod/")
			if !ok || name == "" {
				return fmt.Errorf("explain %q: the argument must be pod/NAME", args[0])
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			r.pod, r.out = name, cmd.OutOrStdout()
			return r.run(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&r.config, "config", "", "the scheduler's configuration file (default that of the Deployment tessera-scheduler)")
	r.answer.Add(cmd, output.Name)
	return cmd
}

// request is one call of the verb.
type request struct {
	pod, config string
	answer      output.Flags
	out         io.Writer
}

func (r request) run(ctx context.Context, c *cluster.Cluster) error {
	pod, err := c.Client.CoreV1().Pods(c.Namespace).Get(ctx, r.pod, metav1.GetOptions{})
	if err != nil {
		return cluster.ExplainError(fmt.Sprintf("read pod %s/%s", c.Namespace, r.pod), err)
	}
	e, err := r.explain(ctx, c, pod)
	if err != nil {
		return err
	}
	e.TypeMeta = metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}
	result := output.Result{Value: e, Draw: func(s *output.Screen) { draw(s, e) }}
	for _, n := range e.Nodes {
		result.Rows = append(result.Rows, output.Row{Name: "node/" + n.Name, Value: n})
	}
	return r.answer.Print(r.out, result)
}

func (r request) explain(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod) (Explanation, error) {
	ctx = klog.NewContext(ctx, logr.Discard()) // the scheduler's own log does not belong to the answer
	if pod.Spec.NodeName != "" {
		return explainBound(ctx, c, pod)
	}
	profile, err := dryrun.ProfileFor(ctx, c, r.config, pod.Spec.SchedulerName)
	if err != nil {
		return Explanation{}, err
	}
	return Simulate(ctx, c.Client, profile, pod)
}

// Simulate returns what a scheduler with the profile would do with the pod now. It lists and watches all objects that a scheduler reads and writes
// nothing.
func Simulate(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile, pod *corev1.Pod) (Explanation, error) {
	e, retry, err := simulateOnce(ctx, client, profile, pod)
	if err != nil || !retry {
		return e, err
	}
	// The plugin does the same: when none of its best nodes fits, the next attempt considers all nodes.
	if profile, err = dryrun.WithAllCandidates(profile); err != nil {
		return Explanation{}, err
	}
	e, _, err = simulateOnce(ctx, client, profile, pod)
	return e, err
}

func simulateOnce(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile, pod *corev1.Pod) (Explanation, bool, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	d, err := dryrun.New(ctx, client, profile)
	if err != nil {
		return Explanation{}, false, err
	}
	return simulateAttempt(ctx, d, pod)
}

// explainBound returns the node and the devices of a pod that is bound to a node.
func explainBound(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod) (Explanation, error) {
	list, err := claims.Load(ctx, c, claims.Selection{Namespace: pod.Namespace})
	if err != nil {
		return Explanation{}, err
	}
	n := Node{Name: pod.Spec.NodeName, Fits: true, Reason: "the pod is bound to this node"}
	for _, claim := range list.Items {
		for _, user := range claim.Pods {
			if user != pod.Name {
				continue
			}
			for _, device := range claim.Devices {
				n.Devices = append(n.Devices, device.Name)
			}
		}
	}
	return Explanation{
		Namespace: pod.Namespace, Pod: pod.Name, Scheduler: pod.Spec.SchedulerName, BoundNode: pod.Spec.NodeName,
		Chosen: []string{pod.Spec.NodeName}, Nodes: []Node{n},
	}, nil
}
