package explain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// attempt is one attempt to schedule a pod, up to the choice of the node.
type attempt struct {
	*dryRun
	pod   *corev1.Pod
	state fwk.CycleState
	// left reports that the plugin left out nodes that fit.
	left bool
}

// try runs an attempt as kube-scheduler does, except that it looks at every node that the plugins do not
// leave out, and returns what it found, by node.
func (d *dryRun) try(ctx context.Context, pod *corev1.Pod) (Explanation, bool, error) {
	a := &attempt{dryRun: d, pod: pod, state: framework.NewCycleState()}
	nodes, err := d.nodes.List()
	if err != nil {
		return Explanation{}, false, fmt.Errorf("list the nodes: %w", err)
	}
	e := Explanation{Namespace: pod.Namespace, Pod: pod.Name, Scheduler: pod.Spec.SchedulerName}
	result, status, _ := d.framework.RunPreFilterPlugins(ctx, a.state, pod)
	if status.Code() == fwk.Error {
		return Explanation{}, false, fmt.Errorf("prefilter: %w", status.AsError())
	}
	if !status.IsSuccess() {
		e.Refusal = status.Message()
	}
	var feasible []fwk.NodeInfo
	for _, info := range nodes {
		v := a.look(ctx, info, result, status)
		if v.Fits {
			feasible = append(feasible, info)
		}
		e.Nodes = append(e.Nodes, v)
	}
	if err := a.score(ctx, feasible, &e); err != nil {
		return Explanation{}, false, err
	}
	e.sort()
	return e, a.left && len(feasible) == 0, nil
}

// look filters one node, unless the pod was refused before. Nodes that the plugin left out are filtered as
// well: most of them are closed to the pod.
func (a *attempt) look(ctx context.Context, info fwk.NodeInfo, result *fwk.PreFilterResult, before *fwk.Status) Node {
	v := Node{Name: info.Node().Name}
	report, concerned := a.plugin.Report(a.state, v.Name) //nolint:contextcheck // what selectors say is bounded by their cost, and remembered
	if concerned {
		v.Reason = report.Reason
	}
	if !before.IsSuccess() {
		if v.Reason == "" {
			v.Reason = before.Message()
		}
		return v
	}
	status := a.framework.RunFilterPluginsWithNominatedPods(ctx, a.state, a.pod, info)
	switch {
	case !status.IsSuccess():
		if status.Plugin() != a.plugin.Name() || !report.Decided || report.Fits {
			v.Reason = status.Plugin() + ": " + status.Message()
		}
	case !result.AllNodes() && !result.NodeNames.Has(v.Name):
		v.Reason, a.left = "left out: enough others leave more for the pods to come", true
	default:
		v.Fits, v.Devices = true, report.Devices
	}
	return v
}

// score scores the nodes that fit and says which are chosen. A single node is chosen without a score.
func (a *attempt) score(ctx context.Context, feasible []fwk.NodeInfo, e *Explanation) error {
	if len(feasible) < 2 {
		for _, info := range feasible {
			e.Chosen = append(e.Chosen, info.Node().Name)
		}
		return nil
	}
	if status := a.framework.RunPreScorePlugins(ctx, a.state, a.pod, feasible); !status.IsSuccess() {
		return fmt.Errorf("prescore: %w", status.AsError())
	}
	scores, status := a.framework.RunScorePlugins(ctx, a.state, a.pod, feasible)
	if !status.IsSuccess() {
		return fmt.Errorf("score: %w", status.AsError())
	}
	best := slices.MaxFunc(scores, func(x, y fwk.NodePluginScores) int { return int(x.TotalScore - y.TotalScore) }).TotalScore
	for _, s := range scores {
		i := slices.IndexFunc(e.Nodes, func(n Node) bool { return n.Name == s.Name })
		e.Nodes[i].Score = &s.TotalScore
		if s.TotalScore == best {
			e.Chosen = append(e.Chosen, s.Name)
		}
	}
	slices.Sort(e.Chosen)
	return nil
}
