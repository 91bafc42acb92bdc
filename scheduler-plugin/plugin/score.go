package plugin

import (
	"context"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// PreScore leaves pods out that no device has to be chosen for.
func (p *Plugin) PreScore(_ context.Context, cs fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if current(cs) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns how much choosing the node leaves for the pods to come (fit.Choice.Score).
func (p *Plugin) Score(ctx context.Context, cs fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c := current(cs)
	if c == nil {
		return 0, nil
	}
	v, ok := c.verdict(info.Node().Name)
	if !ok {
		v = p.judge(ctx, cs, c, info)
		c.record(info.Node().Name, v)
	}
	if !v.status.IsSuccess() {
		return 0, v.status
	}
	return v.score, nil
}

// ScoreExtensions returns the plugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore maps the scores to 0 to 100. What the in-tree plugin scores, the user's order of
// alternatives, comes first: nodes of equal preference share a band of equal width, the best one on top.
// Inside its band the best node has the upper end, the worst the lower end, and those between what their
// distance to both is.
func (p *Plugin) NormalizeScore(_ context.Context, cs fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	c := current(cs)
	if c == nil {
		return nil
	}
	bands := map[int64]*band{}
	of := make([]int64, len(scores))
	for i, s := range scores {
		if v, ok := c.verdict(s.Name); ok {
			of[i] = v.preference
		}
		b, ok := bands[of[i]]
		if !ok {
			b = &band{least: math.MaxInt64, most: math.MinInt64}
			bands[of[i]] = b
		}
		b.least, b.most = min(b.least, s.Score), max(b.most, s.Score)
	}
	var preferences []int64
	for preference := range bands {
		preferences = append(preferences, preference)
	}
	slices.Sort(preferences)
	width := float64(fwk.MaxNodeScore) / float64(len(preferences))
	for i := range scores {
		at, _ := slices.BinarySearch(preferences, of[i])
		scores[i].Score = int64(width * (float64(at) + bands[of[i]].share(scores[i].Score)))
	}
	return nil
}

// band is the range of the scores of nodes that the user prefers alike.
type band struct {
	least, most int64
}

// share returns where in the band the score lies, 0 to 1.
func (b *band) share(score int64) float64 {
	if b.most == b.least {
		return 1
	}
	return (float64(score) - float64(b.least)) / (float64(b.most) - float64(b.least))
}

// preference is what the in-tree plugin would score the choice: of every request with alternatives, the
// earlier the better.
func preference(c *cycle, choice fit.Choice) int64 {
	var sum int64
	for i, pick := range choice.Picks {
		if i < len(c.alternatives) && c.alternatives[i] {
			sum += int64(resourceapi.FirstAvailableDeviceRequestMaxSize - pick.Alternative)
		}
	}
	return sum
}
