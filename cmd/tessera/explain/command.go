package explain

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tessera-gpu/tessera/cmd/tessera/claims"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	r := request{}
	cmd := &cobra.Command{
		Use:   "explain pod/NAME",
		Short: "Say where a pod would go and which devices it would get, or why it fits nowhere",
		Long: `Run the scheduler's own code over what the cluster has now, without scheduling anything, and say of every
node whether the pod fits, which devices it would get there, what that costs the pods to come, or what is
missing. Where several nodes are chosen the scheduler takes any of them.

The scheduler's configuration is that of the Deployment tessera-scheduler in tessera-system, or a file's.
Whoever asks must be allowed to read what a scheduler reads (ClusterRole system:kube-scheduler).`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.answer.Validate(); err != nil {
				return err
			}
			name, ok := strings.CutPrefix(args[0], "pod/")
			if !ok || name == "" {
				return fmt.Errorf("explain %q: name a pod: pod/NAME", args[0])
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			r.pod, r.out = name, cmd.OutOrStdout()
			return r.run(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&r.config, "config", "", "the scheduler's configuration file; by default what the cluster's scheduler runs with")
	r.answer.Add(cmd, output.Text, output.JSON)
	return cmd
}

// request is what a user wants explained.
type request struct {
	pod, config string
	answer      output.Flags
	out         io.Writer
}

func (r request) run(ctx context.Context, c *cluster.Cluster) error {
	screen, err := output.NewScreen(r.out, r.answer.Color)
	if err != nil {
		return err
	}
	pod, err := c.Client.CoreV1().Pods(c.Namespace).Get(ctx, r.pod, metav1.GetOptions{})
	if err != nil {
		return cluster.Explain(fmt.Sprintf("read pod %s of %s", r.pod, c.Namespace), err)
	}
	e, err := r.explain(ctx, c, pod)
	if err != nil {
		return err
	}
	e.TypeMeta = metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}
	if r.answer.Format == output.JSON {
		return output.WriteJSON(r.out, e)
	}
	draw(screen, e)
	return screen.Err()
}

func (r request) explain(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod) (Explanation, error) {
	if pod.Spec.NodeName != "" {
		return bound(ctx, c, pod)
	}
	loaded, err := configuration(ctx, c, r.config)
	if err != nil {
		return Explanation{}, err
	}
	profile, err := profileOf(loaded, pod.Spec.SchedulerName)
	if err != nil {
		return Explanation{}, err
	}
	return Simulate(ctx, c.Client, profile, pod)
}

// Simulate returns what a scheduler of the profile would do with the pod now. It reads everything that a
// scheduler reads and writes nothing.
func Simulate(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile, pod *corev1.Pod) (Explanation, error) {
	metrics.Register()
	e, again, err := simulate(ctx, client, profile, pod)
	if err != nil || !again {
		return e, err
	}
	// As the plugin does: when none of the best nodes will do, it looks at all of them.
	if profile, err = wide(profile); err != nil {
		return Explanation{}, err
	}
	e, _, err = simulate(ctx, client, profile, pod)
	return e, err
}

func simulate(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile, pod *corev1.Pod) (Explanation, bool, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	d, err := newDryRun(ctx, client, profile)
	if err != nil {
		return Explanation{}, false, err
	}
	return d.try(ctx, pod)
}

// bound returns where the pod is and what it holds.
func bound(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod) (Explanation, error) {
	list, err := claims.Load(ctx, c, pod.Namespace)
	if err != nil {
		return Explanation{}, err
	}
	n := Node{Name: pod.Spec.NodeName, Fits: true, Reason: "the pod is there"}
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
		Namespace: pod.Namespace, Pod: pod.Name, Scheduler: pod.Spec.SchedulerName, Bound: pod.Spec.NodeName,
		Chosen: []string{pod.Spec.NodeName}, Nodes: []Node{n},
	}, nil
}
