package fit

import (
	"cmp"
	"math"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// DevicesByCost returns the positions of the node's devices, those that take the least value from their GPU first.
// Devices that are not free come last. Devices of equal cost keep the order of publication.
func DevicesByCost(n *Node) []int {
	costs := make([]int64, len(n.Devices))
	order := make([]int, len(n.Devices))
	for i := range order {
		order[i], costs[i] = i, deviceCost(n, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(costs[a], costs[b]) })
	return order
}

// deviceCost returns the value that the device takes from its GPU, the maximum if the device is not free.
func deviceCost(n *Node, device int) int64 {
	d := n.Devices[device]
	g := &n.GPUs[d.GPU]
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

// RelativeLoss returns the value that the choice takes from the node, in units of the value of one empty GPU: 1 for a
// whole GPU, for MIG devices what the placements that they block are worth. Shares of shared GPUs are not counted.
func RelativeLoss(n *Node, choice Choice) float64 {
	counted := make([]bool, len(n.GPUs))
	var loss float64
	for _, pick := range choice.Picks {
		for _, device := range pick.Devices {
			if g := n.Devices[device].GPU; !counted[g] {
				counted[g] = true
				loss += relativeLossOf(n, choice, g)
			}
		}
	}
	return loss
}

// relativeLossOf returns the value that the choice takes from the GPU at the position.
func relativeLossOf(n *Node, choice Choice, position int) float64 {
	g := &n.GPUs[position]
	after := g.Occupancy
	for _, pick := range choice.Picks {
		for _, device := range pick.Devices {
			d := n.Devices[device]
			if d.GPU != position {
				continue
			}
			taken, err := after.Take(d.Use)
			if err != nil {
				return 0
			}
			after = taken
		}
	}
	empty := g.Kind.Value(g.Kind.Empty())
	if empty == 0 {
		return 1
	}
	return float64(g.Kind.Value(g.Kind.State(g.Occupancy))-g.Kind.Value(g.Kind.State(after))) / float64(empty)
}
