package plugin

import (
	"cmp"
	"math"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
)

// worth compares what the in-tree allocator would take of the node with what it would take of others, as
// Choice.Score does.
func worth(n *index.Node, capture *intree.Capture) int64 {
	taken := map[string]bool{}
	for _, claim := range capture.Claims {
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == n.Driver && r.Pool == n.Pool && (r.AdminAccess == nil || !*r.AdminAccess) {
				taken[r.Device] = true
			}
		}
	}
	if len(taken) == 0 {
		return 0
	}
	only := fit.Alternative{Candidates: fit.NewSet(len(n.Devices)), Count: len(taken)}
	for i, d := range n.Devices {
		if taken[d.Name] {
			only.Candidates.Add(i)
		}
	}
	choice, ok := fit.Choose(&n.Fit, &fit.Demand{Requests: []fit.Request{{Alternatives: []fit.Alternative{only}}}})
	if !ok {
		return math.MinInt64
	}
	return choice.Score
}

// preferred returns the positions of the node's devices, those that cost the node least first. What is not
// free comes last, as it is only looked at in vain.
func preferred(n *index.Node) []int {
	costs := make([]int64, len(n.Devices))
	order := make([]int, len(n.Devices))
	for i := range order {
		order[i], costs[i] = i, cost(n, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(costs[a], costs[b]) })
	return order
}

// cost is the value that the device takes from its GPU.
func cost(n *index.Node, device int) int64 {
	d := n.Fit.Devices[device]
	g := &n.Fit.GPUs[d.GPU]
	state := g.Kind.State(g.Occupancy)
	if d.Use.Shape == gpu.MIG {
		for _, option := range g.Kind.Options(state, d.Use.Placement.Profile) {
			if option.Placement == d.Use.Placement {
				return int64(option.Loss)
			}
		}
		return math.MaxInt64
	}
	if g.Occupancy.Shape() == gpu.None {
		return int64(g.Kind.Value(state))
	}
	if g.Occupancy.Shape() == d.Use.Shape {
		return 0
	}
	return math.MaxInt64
}
