package plugin

import (
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// loss returns what the choice takes from the node's GPUs, as a share of what one empty GPU is worth: of
// a whole GPU 1, of slices the placements that they make impossible. What shared devices take is not
// counted.
func loss(n *index.Node, choice fit.Choice) float64 {
	concerned := make([]bool, len(n.Fit.GPUs))
	var lost float64
	for _, pick := range choice.Picks {
		for _, device := range pick.Devices {
			if g := n.Fit.Devices[device].GPU; !concerned[g] {
				concerned[g] = true
				lost += lostOn(n, choice, g)
			}
		}
	}
	return lost
}

// lostOn returns what the choice takes from one GPU.
func lostOn(n *index.Node, choice fit.Choice, position int) float64 {
	g := &n.Fit.GPUs[position]
	after := g.Occupancy
	for _, pick := range choice.Picks {
		for _, device := range pick.Devices {
			d := n.Fit.Devices[device]
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
