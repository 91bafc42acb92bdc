package explain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tessera-gpu/tessera/cmd/tessera/dryrun"
)

// attempt is one simulated scheduling attempt, up to the choice of the node.
type attempt struct {
	*dryrun.Scheduler
	pod   *corev1.Pod
	state fwk.CycleState
	// omitted reports that the plugin's PreFilter omitted nodes on which the pod fits.
	omitted bool
}

// simulateAttempt runs one scheduling attempt with the plugins of the profile and returns the result for every node. Unlike kube-scheduler it filters all
// nodes. retry reports that no node fits while the plugin omitted some that do.
func simulateAttempt(ctx context.Context, d *dryrun.Scheduler, pod *corev1.Pod) (e Explanation, retry bool, err error) {
	a := &attempt{Scheduler: d, pod: pod, state: framework.NewCycleState()}
	nodes, err := d.Nodes.List()
	if err != nil {
		return Explanation{}, false, fmt.Errorf("list the nodes: %w", err)
	}
	e = Explanation{Namespace: pod.Namespace, Pod: pod.Name, Scheduler: pod.Spec.SchedulerName}
	result, status, _ := d.Framework.RunPreFilterPlugins(ctx, a.state, pod)
	if status.Code() == fwk.Error {
		return Explanation{}, false, fmt.Errorf("prefilter: %w", status.AsError())
	}
	if !status.IsSuccess() {
		e.Rejection = status.Message()
	}
	var feasible []fwk.NodeInfo
	for _, info := range nodes {
		v := a.filterNode(ctx, info, result, status)
		if v.Fits {
			feasible = append(feasible, info)
		}
		e.Nodes = append(e.Nodes, v)
	}
	if err := a.score(ctx, feasible, &e); err != nil {
		return Explanation{}, false, err
	}
	e.sortNodes()
	return e, a.omitted && len(feasible) == 0, nil
}

// filterNode filters one node, unless PreFilter rejected the pod. Nodes that the plugin's PreFilter omitted are filtered, too: most of them do not fit for
// other reasons, which are reported.
func (a *attempt) filterNode(ctx context.Context, info fwk.NodeInfo, result *fwk.PreFilterResult, before *fwk.Status) Node {
	v := Node{Name: info.Node().Name}
	report, found := a.Plugin.Report(a.state, v.Name) //nolint:contextcheck // selectors have bounded cost, and their results are cached
	if found {
		v.Reason = report.Reason
	}
	if !before.IsSuccess() {
		if v.Reason == "" {
			v.Reason = before.Message()
		}
		return v
	}
	status := a.Framework.RunFilterPluginsWithNominatedPods(ctx, a.state, a.pod, info)
	switch {
	case !status.IsSuccess():
		if status.Plugin() != a.Plugin.Name() || !report.Decided || report.Fits {
			v.Reason = status.Plugin() + ": " + status.Message()
		}
	case !result.AllNodes() && !result.NodeNames.Has(v.Name):
		v.Reason, a.omitted = "omitted: enough other nodes keep more capacity for later pods", true
	default:
		v.Fits, v.Devices = true, report.Devices
	}
	return v
}

// score scores the feasible nodes and sets those with the highest score as chosen. A single feasible node is chosen without a score.
func (a *attempt) score(ctx context.Context, feasible []fwk.NodeInfo, e *Explanation) error {
	if len(feasible) < 2 {
		for _, info := range feasible {
			e.Chosen = append(e.Chosen, info.Node().Name)
		}
		return nil
	}
	if status := a.Framework.RunPreScorePlugins(ctx, a.state, a.pod, feasible); !status.IsSuccess() {
		return fmt.Errorf("prescore: %w", status.AsError())
	}
	scores, status := a.Framework.RunScorePlugins(ctx, a.state, a.pod, feasible)
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
