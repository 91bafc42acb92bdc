package fit_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// worth is what the free placements of all GPUs are worth, by the tables, which another test compares
// with the model.
func worth(n *fit.Node, occupied []gpu.Occupancy) int32 {
	var sum int32
	for i, g := range n.GPUs {
		sum += g.Kind.Value(g.Kind.State(occupied[i]))
	}
	return sum
}

func occupancies(n *fit.Node) []gpu.Occupancy {
	all := make([]gpu.Occupancy, len(n.GPUs))
	for i, g := range n.GPUs {
		all[i] = g.Occupancy
	}
	return all
}

// after returns what the GPUs hold after the choice.
func after(tb rapid.TB, n *fit.Node, req *fit.Requirements, c fit.Choice) []gpu.Occupancy {
	occupied := occupancies(n)
	for r, pick := range c.Picks {
		for _, device := range pick.Devices {
			g := n.Devices[device].GPU
			next, err := occupied[g].Take(use(n, &req.Requests[r].Alternatives[pick.Alternative], device))
			if err != nil {
				tb.Fatal(err)
			}
			occupied[g] = next
		}
	}
	return occupied
}

// drawSlices returns a node on which only MIG is used.
func drawSlices(t *rapid.T, nodes []*fit.Node) *fit.Node {
	n := *rapid.SampledFrom(nodes).Draw(t, "node")
	n.GPUs = slices.Clone(n.GPUs)
	for range rapid.IntRange(0, 10).Draw(t, "held") {
		d := n.Devices[rapid.IntRange(0, len(n.Devices)-1).Draw(t, "device")]
		if next, err := n.GPUs[d.GPU].Occupancy.Take(d.Use); err == nil && d.Use.Shape == gpu.MIG {
			n.GPUs[d.GPU].Occupancy = next
		}
	}
	return &n
}

// TestOneSliceTakesTheLeast compares the choice for one placement with every other one of the node.
func TestOneSliceTakesTheLeast(t *testing.T) {
	t.Parallel()
	nodes := []*fit.Node{nodeOf(t, "h100x8"), nodeOf(t, "rtxpro6000x4"), nodeOf(t, "a30x4l40sx4")}
	rapid.Check(t, func(t *rapid.T) {
		n := drawSlices(t, nodes)
		like := n.Devices[rapid.IntRange(0, len(n.Devices)-1).Filter(func(i int) bool { return n.Devices[i].Use.Shape == gpu.MIG }).Draw(t, "like")]
		d := demand(fit.Alternative{Count: 1, Candidates: selected(n, func(d fit.Device) bool {
			return d.Use.Shape == gpu.MIG && d.Use.Placement.Profile == like.Use.Placement.Profile
		})})
		choice, ok := fit.Choose(n, d, nil)
		before := worth(n, occupancies(n))
		best, found := fit.PlacementCost{}, false
		for i := range n.Devices {
			g := n.GPUs[n.Devices[i].GPU]
			if !d.Requests[0].Alternatives[0].Candidates.Has(i) || !g.Occupancy.Fits(n.Devices[i].Use) {
				continue
			}
			only := fit.Choice{Picks: []fit.Pick{{Devices: []int{i}}}}
			bid := fit.PlacementCost{
				Loss:    before - worth(n, after(t, n, d, only)),
				Holders: g.Occupancy.Holders(), Free: g.Occupancy.Free().Count(),
			}
			if !found || bid.Compare(best) < 0 {
				best, found = bid, true
			}
		}
		if ok != found {
			t.Fatalf("%s: served %v, want %v", describe(n, d), ok, found)
		}
		if !ok {
			return
		}
		g := n.GPUs[n.Devices[choice.Picks[0].Devices[0]].GPU]
		got := fit.PlacementCost{Loss: before - worth(n, after(t, n, d, choice)), Holders: g.Occupancy.Holders(), Free: g.Occupancy.Free().Count()}
		if got != best {
			t.Fatalf("%s: bid %+v, the best is %+v", describe(n, d), got, best)
		}
	})
}

// TestTeamsTakeTheBestSet compares whole GPUs with every set of as many idle ones, across constraints.
func TestTeamsTakeTheBestSet(t *testing.T) {
	t.Parallel()
	nodes := []*fit.Node{nodeOf(t, "dgx1"), nodeOf(t, "h100x8"), nodeOf(t, "mixed16")}
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, nodes)
		a := alternativeIn(n, rapid.IntRange(2, 4).Draw(t, "count"))
		d := demand(a)
		constrained := rapid.Bool().Draw(t, "constrained")
		if constrained {
			d.Constraints = []fit.Constraint{drawConstraint(t, n, d)}
		}
		best := 0.0
		var try func(from int, devices []int)
		try = func(from int, devices []int) {
			if len(devices) == a.Count {
				if consistent(n, d, []fit.Pick{{Devices: devices}}) == nil {
					best = max(best, n.Wiring.Quality(positions(n, devices)))
				}
				return
			}
			for i := from; i < len(n.Devices); i++ {
				if a.Candidates.Has(i) && n.GPUs[n.Devices[i].GPU].Occupancy.Idle() {
					try(i+1, append(slices.Clone(devices), i))
				}
			}
		}
		try(0, nil)
		choice, ok := fit.Choose(n, d, nil)
		if ok != (best > 0) {
			t.Fatalf("%s: served %v, best quality %v", describe(n, d), ok, best)
		}
		if ok && n.Wiring.Quality(positions(n, choice.Picks[0].Devices)) != best {
			t.Fatalf("%s: %v has quality %v, the best %v", describe(n, d), choice, n.Wiring.Quality(positions(n, choice.Picks[0].Devices)), best)
		}
	})
}

func alternativeIn(n *fit.Node, count int) fit.Alternative {
	return fit.Alternative{Count: count, Candidates: selected(n, func(d fit.Device) bool { return d.Use.Shape == gpu.Whole })}
}

func positions(n *fit.Node, devices []int) []int {
	var all []int
	for _, device := range devices {
		all = append(all, n.Devices[device].GPU)
	}
	return all
}

// TestScoreOrdersNodes compares the remaining capacity of two nodes after one demand with their scores.
func TestScoreOrdersNodes(t *testing.T) {
	t.Parallel()
	nodes := []*fit.Node{nodeOf(t, "h100x8")}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSlices(t, nodes), drawSlices(t, nodes)
		like := a.Devices[rapid.IntRange(0, len(a.Devices)-1).Filter(func(i int) bool { return a.Devices[i].Use.Shape == gpu.MIG }).Draw(t, "like")]
		d := demand(fit.Alternative{Count: 1, Candidates: selected(a, func(d fit.Device) bool {
			return d.Use.Shape == gpu.MIG && d.Use.Placement.Profile == like.Use.Placement.Profile
		})})
		chosenA, okA := fit.Choose(a, d, nil)
		chosenB, okB := fit.Choose(b, d, nil)
		if !okA || !okB {
			t.Skip("no room")
		}
		lossA := worth(a, occupancies(a)) - worth(a, after(t, a, d, chosenA))
		lossB := worth(b, occupancies(b)) - worth(b, after(t, b, d, chosenB))
		if lossA != lossB && cmp.Compare(lossA, lossB) != -cmp.Compare(chosenA.Score, chosenB.Score) {
			t.Fatalf("losses %d and %d have scores %d and %d", lossA, lossB, chosenA.Score, chosenB.Score)
		}
		renamed := *a
		renamed.Name = "another"
		if again, _ := fit.Choose(&renamed, d, nil); again.Score != chosenA.Score {
			t.Fatalf("equal nodes have scores %d and %d", chosenA.Score, again.Score)
		}
	})
}
