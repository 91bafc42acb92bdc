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

// PreScore skips pods that need no choice of devices.
func (p *Plugin) PreScore(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if cycleOf(cs) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns how much choosing the node leaves for later pods (fit.Choice.Score).
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

// NormalizeScore maps the scores to 0 to 100 and keeps their order: by the score of the in-tree plugin, which is the
// user's order of alternatives, then by the clique of the pod's group, then by Score, then by name. Nodes never tie,
// since the framework would choose among them at random, and filling one node before the next is what keeps large
// requests possible.
//
// The best node gets 100. orderPoints of that are for the place in the order, one point each. The rest is for the
// distance of the score from the best and the worst score of equal preference: other plugins are outvoted where much
// would be lost, and decide between nodes that are nearly equal.
//
// Example: scores 1000, 990 and 0 become 100, 98 and 61: 63, 62 and 61 points for the places, 37, 36 and 0 for the
// distance.
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

// orderPoints is the part of the score for the place in the order.
const orderPoints = 63

// scoredNode is a node with what it is compared by.
type scoredNode struct {
	// at is the position in the list of scores.
	at   int
	name string
	// preference is the user's, and for equal ones that of the pod's group.
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

// compareScoredNodes returns a negative number if a is the better node.
func compareScoredNodes(a, b scoredNode) int {
	return cmp.Or(cmp.Compare(b.preference, a.preference), cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
}

// scoreRanges are the ranges of the scores of nodes with equal preference, the highest preference first.
type scoreRanges []scoreRange

type scoreRange struct{ preference, least, most int64 }

// newScoreRanges returns the ranges of nodes that are sorted.
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

// share returns the position of the node between the worst and the best one, from 0 to 1.
func (all scoreRanges) share(s scoredNode) float64 {
	at := slices.IndexFunc(all, func(r scoreRange) bool { return r.preference == s.preference })
	r, inside := all[at], 1.0
	if r.most > r.least {
		inside = (float64(s.score) - float64(r.least)) / (float64(r.most) - float64(r.least))
	}
	return (float64(len(all)-1-at) + inside) / float64(len(all))
}

// alternativePreference is the score that the in-tree plugin would give to the choice: for every request with
// alternatives, more for an earlier one.
func alternativePreference(c *cycle, choice fit.Choice) int64 {
	var sum int64
	for i, pick := range choice.Picks {
		if i < len(c.alternatives) && c.alternatives[i] {
			sum += int64(resourceapi.FirstAvailableDeviceRequestMaxSize - pick.Alternative)
		}
	}
	return sum
}
