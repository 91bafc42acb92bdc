package plugin

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// PreScore leaves pods out that no device has to be chosen for.
func (p *Plugin) PreScore(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if cycleOf(cs) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns how much choosing the node leaves for the pods to come (fit.Choice.Score).
func (p *Plugin) Score(ctx context.Context, cs fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c := cycleOf(cs)
	if c == nil {
		return 0, nil
	}
	v, ok := c.verdict(info.Node().Name)
	if !ok {
		v = p.evaluateNode(ctx, cs, c, info)
		c.record(info.Node().Name, v)
	}
	if !v.status.IsSuccess() {
		return 0, v.status
	}
	return v.score, nil
}

// ScoreExtensions returns the plugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore maps the scores to 0 to 100 and keeps their order: first what the in-tree plugin scores,
// the user's order of alternatives, then the clique of the pod's group, then the score, then the name. Ties
// would fall at random otherwise, and what depends on the last digits of a score, which node is filled
// first, is worth a lot.
//
// The best node has 100. Of that, steps is for the place in the order, one for each; the rest is for where
// the score is between the best and the worst one of equal preference, so that other plugins are outvoted
// where there is much to lose, and nodes that are equal are told apart by what other plugins prefer.
func (p *Plugin) NormalizeScore(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	c := cycleOf(cs)
	if c == nil || len(scores) == 0 {
		return nil
	}
	standings := c.scoredNodes(scores)
	slices.SortFunc(standings, compareScoredNodes)
	ranges := newScoreRanges(standings)
	for place, s := range standings {
		scores[s.at].Score = int64(max(orderPoints-place, 0)) + int64(float64(fwk.MaxScore-orderPoints)*ranges.share(s))
	}
	return nil
}

// orderPoints is the part of the score that stands for the place in the order.
const orderPoints = 63

// scoredNode is how a node compares with others.
type scoredNode struct {
	// at is the position in the list of scores.
	at   int
	name string
	// preference is the user's, and of equals that of the pod's group.
	preference, score int64
}

func (c *cycle) scoredNodes(scores fwk.NodeScoreList) []scoredNode {
	list := make([]scoredNode, len(scores))
	for i, s := range scores {
		list[i] = scoredNode{at: i, name: s.Name, score: s.Score}
		if v, ok := c.verdict(s.Name); ok {
			list[i].preference = 2 * v.preference
		}
		if c.preferred.Has(s.Name) {
			list[i].preference++
		}
	}
	return list
}

// compareScoredNodes is negative when a is the better one.
func compareScoredNodes(a, b scoredNode) int {
	return cmp.Or(cmp.Compare(b.preference, a.preference), cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
}

// scoreRanges are the ranges of the scores of nodes of equal preference, the most preferred first.
type scoreRanges []scoreRange

type scoreRange struct{ preference, least, most int64 }

// newScoreRanges returns the ranges of standings that are in order.
func newScoreRanges(ordered []scoredNode) scoreRanges {
	var all scoreRanges
	for _, s := range ordered {
		if last := len(all) - 1; last >= 0 && all[last].preference == s.preference {
			all[last].least = s.score
			continue
		}
		all = append(all, scoreRange{s.preference, s.score, s.score})
	}
	return all
}

// share returns where between the worst and the best the standing is, 0 to 1.
func (all scoreRanges) share(s scoredNode) float64 {
	at := slices.IndexFunc(all, func(r scoreRange) bool { return r.preference == s.preference })
	r, inside := all[at], 1.0
	if r.most > r.least {
		inside = (float64(s.score) - float64(r.least)) / (float64(r.most) - float64(r.least))
	}
	return (float64(len(all)-1-at) + inside) / float64(len(all))
}

// alternativePreference is what the in-tree plugin would score the choice: of every request with alternatives, the
// earlier the better.
func alternativePreference(c *cycle, choice fit.Choice) int64 {
	var sum int64
	for i, pick := range choice.Picks {
		if i < len(c.alternatives) && c.alternatives[i] {
			sum += int64(resourceapi.FirstAvailableDeviceRequestMaxSize - pick.Alternative)
		}
	}
	return sum
}
