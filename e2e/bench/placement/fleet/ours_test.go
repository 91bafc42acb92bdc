package fleet

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// TestOursIsThePlugins checks on random states of some nodes that the policy Ours of the bench makes
// the choice of the scheduler plugin: evaluate every node with fit.Choose and take the best score.
func TestOursIsThePlugins(t *testing.T) {
	t.Parallel()
	s, machine := states(t, "h100-80"), gputest.Node(t, "h100x8")
	kind, wiring := fit.NewKind(s.Geometry, fit.Weights{}), topology.NewWiring(machine.GPUs)
	ours := Ours(s, fit.Weights{})
	rapid.Check(t, func(t *rapid.T) {
		const nodes = 4
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		f := New(s, nodes*len(machine.GPUs))
		for range r.IntN(120) {
			c := Choice{GPU: r.IntN(len(f.State)), Placement: r.IntN(len(s.Placements))}
			if s.Taken[f.State[c.GPU]][c.Placement] != None {
				f.Take(c)
			}
		}
		profile := r.IntN(len(s.Profiles))
		best, at := fit.Choice{}, None
		for i := range nodes {
			node := node(f, i*len(machine.GPUs), len(machine.GPUs), kind)
			node.Wiring = wiring
			if choice, ok := fit.Choose(node, demand(node, s.Profiles[profile].ID), nil); ok && (at == None || choice.Score > best.Score) {
				best, at = choice, i
			}
		}
		got, ok := ours.Choose(f, arrivals.Demand{Kind: profile})
		if ok != (at != None) {
			t.Fatalf("the plugin finds room: %v, the bench: %v", at != None, ok)
		}
		if !ok {
			return
		}
		device := node(f, at*len(machine.GPUs), len(machine.GPUs), kind).Devices[best.Picks[0].Devices[0]]
		want := Choice{GPU: at*len(machine.GPUs) + device.GPU, Placement: slices.Index(s.Placements, device.Use.Placement)}
		if diff := cmp.Diff(bid(f, kind, want), bid(f, kind, got)); diff != "" {
			t.Fatalf("%s (-plugin +bench):\n%s", s.Profiles[profile].Name, diff)
		}
	})
}

// bid is the compared part of a choice: equal choices of equal score are not distinguished.
func bid(f *Fleet, kind *fit.Kind, c Choice) fit.PlacementCost {
	held := f.Held[f.State[c.GPU]]
	before, after := kind.State(held), kind.State(f.Held[f.Taken[f.State[c.GPU]][c.Placement]])
	return fit.PlacementCost{Loss: kind.Value(before) - kind.Value(after), Holders: held.Holders(), Free: held.Free().Count()}
}

// node returns some of the fleet's GPUs as a node of the plugin's.
func node(f *Fleet, from, count int, kind *fit.Kind) *fit.Node {
	n := &fit.Node{}
	for g := range count {
		n.GPUs = append(n.GPUs, fit.GPU{Kind: kind, Occupancy: f.Held[f.State[from+g]]})
		for _, p := range f.Placements {
			n.Devices = append(n.Devices, fit.Device{GPU: g, Use: gpu.Use{Shape: gpu.MIG, Placement: p}})
		}
	}
	return n
}

// demand evaluates a node for one of the profile.
func demand(n *fit.Node, profile int) *fit.Requirements {
	candidates := fit.NewSet(len(n.Devices))
	for i, d := range n.Devices {
		if d.Use.Placement.Profile == profile {
			candidates.Add(i)
		}
	}
	return &fit.Requirements{Requests: []fit.Request{{Name: "request", Alternatives: []fit.Alternative{{Candidates: candidates, Count: 1}}}}}
}
