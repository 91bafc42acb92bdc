package defrag

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/dryrun"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/scheduler-plugin/defrag"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "defrag",
		Short: "Find pods whose move to other devices makes room for a pod that waits",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(planCommand(flags))
	return cmd
}

func planCommand(flags *cluster.Flags) *cobra.Command {
	r := request{now: time.Now}
	cmd := &cobra.Command{
		Use:   "plan pod/NAME",
		Short: "Show the cheapest moves that make room for a pending pod",
		Long: `Show which pods would have to be moved so that a pending pod gets its devices: one pod if that is enough, otherwise
two. The search runs the scheduler's code on the current state of the cluster and changes nothing.

A move is an eviction: the pod's controller replaces it, and the new pod gets other devices. Of several plans, that
with the lowest priorities, the fewest pods and the least running time is shown. Pods that no controller replaces, of
DaemonSets, of Jobs that count an eviction as a failure, of higher priority, with an annotation against disruption, or
whose PodDisruptionBudget allows no eviction now are not moved.

The scheduler's configuration is read from the Deployment tessera-scheduler, or from a file.
Requires the read permissions of a scheduler (ClusterRole system:kube-scheduler), and those for Jobs.`,
		Example:           "  tessera defrag plan pod/train-0 -n team-a",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: flags.Complete(pendingPods),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.answer.Validate(); err != nil {
				return err
			}
			name, ok := strings.CutPrefix(args[0], "pod/")
			if !ok || name == "" {
				return fmt.Errorf("defrag plan %q: the argument must be pod/NAME", args[0])
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

// pendingPods completes the argument.
func pendingPods(ctx context.Context, c *cluster.Cluster, _ string) ([]string, error) {
	pods, err := c.ListPods(ctx, c.Namespace)
	var names []string
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			names = append(names, "pod/"+p.Name)
		}
	}
	return names, err
}

// request is one call of plan.
type request struct {
	pod, config string
	answer      output.Flags
	out         io.Writer
	now         func() time.Time
}

func (r request) run(ctx context.Context, c *cluster.Cluster) error {
	pod, err := c.Client.CoreV1().Pods(c.Namespace).Get(ctx, r.pod, metav1.GetOptions{})
	if err != nil {
		return cluster.ExplainError(fmt.Sprintf("read pod %s/%s", c.Namespace, r.pod), err)
	}
	if pod.Spec.NodeName != "" {
		return fmt.Errorf("pod %s/%s runs on node %s already: name a pod that is Pending", c.Namespace, r.pod, pod.Spec.NodeName)
	}
	p, err := r.plan(klog.NewContext(ctx, logr.Discard()), c, pod) // the scheduler's own log does not belong to the answer
	if err != nil {
		return err
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}
	result := output.Result{Value: p, Draw: func(s *output.Screen) { draw(s, p) }}
	for _, m := range p.Moves {
		for _, name := range m.Pods {
			result.Rows = append(result.Rows, output.Row{Name: "pod/" + name, Value: m})
		}
	}
	return r.answer.Print(r.out, result)
}

func (r request) plan(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod) (Plan, error) {
	profile, err := dryrun.ProfileFor(ctx, c, r.config, pod.Spec.SchedulerName)
	if err != nil {
		return Plan{}, err
	}
	return Simulate(ctx, c.Client, profile, pod, r.now())
}

// Simulate returns the plan for a pod that a scheduler with the profile has refused. It lists and watches all objects that a scheduler reads and writes nothing.
func Simulate(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile, pod *corev1.Pod, now time.Time) (Plan, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	d, err := dryrun.NewWithOthers(ctx, client, profile)
	if err != nil {
		return Plan{}, err
	}
	state := framework.NewCycleState()
	_, status, _ := d.Framework.RunPreFilterPlugins(ctx, state, pod) // returns once the plugin has processed all objects
	required := d.Plugin.RequirementsOf(state)
	if required == nil {
		return Plan{}, undecided(pod, status)
	}
	s, err := newSnapshot(ctx, client, d)
	if err != nil {
		return Plan{}, err
	}
	who, err := newStays(ctx, client, pod)
	if err != nil {
		return Plan{}, err
	}
	return s.plan(ctx, pod, required, who, now)
}

// plan returns the plan for a pod.
func (s *snapshot) plan(ctx context.Context, pod *corev1.Pod, required *requirements.PodRequirements, who *stays, now time.Time) (Plan, error) {
	p := Plan{Namespace: pod.Namespace, Pod: pod.Name, Delegated: s.delegated}
	problem := &defrag.Problem{Refused: s.demand(ctx, required, []*corev1.Pod{pod})}
	var movable []*group
	for i, n := range s.nodes {
		problem.Nodes = append(problem.Nodes, n.ForPod(pod.UID).Fit)
		for _, g := range s.groups(i) {
			h, reason, err := s.consider(ctx, g, who, now)
			if err != nil {
				return Plan{}, err
			}
			if reason != "" {
				p.exclude(reason, g.podNames())
				continue
			}
			movable, problem.Holders = append(movable, g), append(problem.Holders, h)
		}
	}
	p.Considered = len(movable)
	found, ok, err := defrag.Find(problem, defrag.MaxMoves, s.budget)
	switch {
	case err != nil:
		return Plan{}, err
	case !ok && s.budget.Exceeded():
		p.Outcome = Unknown
	case !ok:
		p.Outcome = Impossible
	default:
		s.describe(&p, found, movable)
	}
	return p, nil
}

// undecided returns why there is no plan for a pod without requirements that Tessera's plugin has read.
func undecided(pod *corev1.Pod, status *fwk.Status) error {
	if !status.IsSuccess() && status.Message() != "" {
		return fmt.Errorf("pod %s/%s: %s", pod.Namespace, pod.Name, status.Message())
	}
	return fmt.Errorf("pod %s/%s requires no devices that Tessera's scheduler plugin decides on", pod.Namespace, pod.Name)
}

// consider returns the group for the search, or why it is not moved.
func (s *snapshot) consider(ctx context.Context, g *group, who *stays, now time.Time) (defrag.Holder, string, error) {
	if g.stays != "" {
		return defrag.Holder{}, g.stays, nil
	}
	for _, pod := range g.sortedPods() {
		if reason, err := who.reason(ctx, pod); reason != "" || err != nil {
			return defrag.Holder{}, reason, err
		}
	}
	h, refusal := s.holder(ctx, g, now)
	return h, refusal, nil
}

// describe adds the found plan to p.
func (s *snapshot) describe(p *Plan, found defrag.Plan, movable []*group) {
	p.Outcome = Fits
	if len(found.Moves) > 0 {
		p.Outcome = Movable
	}
	p.Node, p.Devices = s.nodes[found.Node].Name, s.devices(found.Node, found.Choice)
	for _, m := range found.Moves {
		g := movable[m.Holder]
		move := Move{
			Pods: g.podNames(), From: Place{s.nodes[g.node].Name, g.devices}, To: Place{s.nodes[m.Node].Name, s.devices(m.Node, m.Choice)},
			Priority: g.priority, RunningSeconds: int64(g.work.Seconds()),
		}
		for _, claim := range g.claims {
			move.Claims = append(move.Claims, claim.Namespace+"/"+claim.Name)
		}
		slices.Sort(move.Claims)
		p.Moves = append(p.Moves, move)
	}
}

func (s *snapshot) devices(node int, c fit.Choice) []string {
	var names []string
	for _, pick := range c.Picks {
		for _, device := range pick.Devices {
			names = append(names, s.nodes[node].Devices[device].Name)
		}
	}
	return names
}
