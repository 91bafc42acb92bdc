package fit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// nodeOf returns the machine as a node whose GPUs are offered in every shape and hold nothing.
func nodeOf(tb testing.TB, machine string) *fit.Node {
	tb.Helper()
	return offered(tb, gputest.Node(tb, machine), gpu.Offer{
		Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, Shares: 4,
	})
}

func offered(tb testing.TB, hardware gpu.Node, offer gpu.Offer) *fit.Node {
	tb.Helper()
	n := &fit.Node{Name: hardware.Name, Wiring: topology.NewWiring(hardware.GPUs)}
	position, known := map[string]int{}, map[string]*fit.Kind{}
	for i, g := range hardware.GPUs {
		if known[g.Product] == nil {
			known[g.Product] = fit.NewKind(g.Geometry, fit.Weights{})
		}
		position[g.Name()] = i
		// Kinds and occupancies of one product share a geometry, as they do in the index.
		g.Geometry = known[g.Product].Geometry
		n.GPUs = append(n.GPUs, fit.GPU{Name: g.Name(), Kind: known[g.Product], Occupancy: g.Empty(offer.Shares), NUMA: g.NUMA, Clique: g.Clique})
	}
	for _, d := range hardware.Devices(offer) {
		n.Devices = append(n.Devices, fit.Device{GPU: position[d.GPU], Use: d.Use})
	}
	return n
}

// hold takes a use of a GPU of the node.
func hold(tb testing.TB, n *fit.Node, position int, uses ...gpu.Use) {
	tb.Helper()
	for _, u := range uses {
		next, err := n.GPUs[position].Occupancy.Take(u)
		if err != nil {
			tb.Fatal(err)
		}
		n.GPUs[position].Occupancy = next
	}
}

// selected returns the devices for which the function is true.
func selected(n *fit.Node, f func(fit.Device) bool) fit.Set {
	set := fit.NewSet(len(n.Devices))
	for i, d := range n.Devices {
		if f(d) {
			set.Add(i)
		}
	}
	return set
}

// alternativeFor returns an alternative for devices of a shape, and for MIG of a profile's name.
func alternativeFor(n *fit.Node, count int, shape gpu.Shape, profile string) fit.Alternative {
	return fit.Alternative{Description: shape.String() + profile, Count: count, Candidates: selected(n, func(d fit.Device) bool {
		if d.Use.Shape != shape {
			return false
		}
		p, _ := n.GPUs[d.GPU].Kind.Geometry.Profile(d.Use.Placement.Profile)
		return shape != gpu.MIG || p.Name == profile
	})}
}

func demand(alternatives ...fit.Alternative) *fit.Requirements {
	return &fit.Requirements{Requests: []fit.Request{{Name: "claim/gpu", Alternatives: alternatives}}}
}

// names describes the devices of the picks.
func names(n *fit.Node, c fit.Choice) []string {
	var all []string
	for _, pick := range c.Picks {
		for _, device := range pick.Devices {
			d := n.Devices[device]
			text := fmt.Sprintf("%d %v", d.GPU, d.Use.Shape)
			if d.Use.Shape == gpu.MIG {
				p, _ := n.GPUs[d.GPU].Kind.Geometry.Profile(d.Use.Placement.Profile)
				text = fmt.Sprintf("%d %s@%d", d.GPU, p.Name, d.Use.Placement.Start)
			}
			all = append(all, text)
		}
	}
	return all
}

func TestChoose(t *testing.T) {
	t.Parallel()
	slice := func(start int) gpu.Use { return mig(gpu.Placement{Profile: 19, Start: start, Size: 1}) }
	half := func(start int) gpu.Use { return mig(gpu.Placement{Profile: 9, Start: start, Size: 4}) }
	whole := gpu.Use{Shape: gpu.Whole}
	tests := map[string]struct {
		machine string
		held    map[int][]gpu.Use
		demand  func(*fit.Node) *fit.Requirements
		want    []string
	}{
		"the slice that costs an empty GPU least": {
			"h100x2", nil,
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "1g.10gb")) }, []string{"0 1g.10gb@6"},
		},
		"the broken GPU, not the empty one": {
			"h100x2", map[int][]gpu.Use{1: {slice(0)}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "1g.10gb")) }, []string{"1 1g.10gb@1"},
		},
		"the half that is whole": {
			"h100x2", map[int][]gpu.Use{0: {slice(6)}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "3g.40gb")) }, []string{"0 3g.40gb@0"},
		},
		"no half left": {
			"h100x2", map[int][]gpu.Use{0: {slice(6), slice(0)}, 1: {whole}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "3g.40gb")) }, nil,
		},
		"the GPU that leaves a square and a pair": {
			"dgx1", map[int][]gpu.Use{1: {whole}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.Whole, "")) }, []string{"0 gpu"},
		},
		"two with two links that leave a square": {
			"dgx1", map[int][]gpu.Use{0: {whole}, 3: {whole}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 2, gpu.Whole, "")) }, []string{"1 gpu", "2 gpu"},
		},
		"four on one side of the switches": {
			"h100x8", map[int][]gpu.Use{1: {whole}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 4, gpu.Whole, "")) }, []string{"4 gpu", "5 gpu", "6 gpu", "7 gpu"},
		},
		"the idle GPU that is alone on its side": {
			"h100x8", map[int][]gpu.Use{5: {whole}, 6: {whole}, 7: {whole}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "1g.10gb")) }, []string{"4 1g.10gb@6"},
		},
		"a share of the GPU that is shared": {
			"h100x2", map[int][]gpu.Use{1: {{Shape: gpu.MPS, Share: gpu.Share{Shares: 1}}}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MPS, "")) }, []string{"1 mps"},
		},
		"the preferred alternative": {
			"h100x2", map[int][]gpu.Use{0: {half(0)}},
			func(n *fit.Node) *fit.Requirements {
				return demand(alternativeFor(n, 2, gpu.Whole, ""), alternativeFor(n, 1, gpu.Whole, ""), alternativeFor(n, 1, gpu.MIG, "1g.10gb"))
			}, []string{"1 gpu"},
		},
		"several slices": {
			"h100x2", map[int][]gpu.Use{0: {half(4)}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 3, gpu.MIG, "1g.10gb")) },
			[]string{"0 1g.10gb@1", "0 1g.10gb@2", "0 1g.10gb@3"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeOf(t, test.machine)
			for position, uses := range test.held {
				hold(t, n, position, uses...)
			}
			choice, ok := fit.Choose(n, test.demand(n), nil)
			if ok != (test.want != nil) {
				t.Fatalf("served: %v, want %v", ok, test.want)
			}
			if diff := cmp.Diff(test.want, names(n, choice)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestChooseFindsIffThereIs compares with a search that tries everything.
func TestChooseFindsIffThereIs(t *testing.T) {
	t.Parallel()
	machines := []*fit.Node{nodeOf(t, "h100x2"), nodeOf(t, "a30x4l40sx4"), nodeOf(t, "rtxpro6000x4"), nodeOf(t, "dgx1")}
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, machines)
		d := drawDemand(t, n)
		reference := &exhaustive{node: n, demand: d}
		want, decided := reference.search()
		if !decided {
			t.Skip("too many ways")
		}
		choice, ok := fit.Choose(n, d, nil)
		if ok != (want != nil) {
			t.Fatalf("%s: served %v, the exhaustive search finds %v", describe(n, d), ok, want)
		}
		if !ok {
			return
		}
		if err := valid(n, d, choice); err != nil {
			t.Fatalf("%s: %v: %v", describe(n, d), choice, err)
		}
		var alternatives []int
		for _, pick := range choice.Picks {
			alternatives = append(alternatives, pick.Alternative)
		}
		if !slices.Equal(alternatives, want) {
			t.Fatalf("%s: alternatives %v, want %v", describe(n, d), alternatives, want)
		}
		again, _ := fit.Choose(n, d, nil)
		if diff := cmp.Diff(choice, again); diff != "" {
			t.Fatalf("chose differently: %s", diff)
		}
	})
}

// TestDemandsOfManyParts compares requirements that are served greedily with the search that leaves nothing out.
func TestDemandsOfManyParts(t *testing.T) {
	t.Parallel()
	machines := []*fit.Node{nodeOf(t, "h100x2"), nodeOf(t, "a100-40x2"), nodeOf(t, "a30x4l40sx4")}
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, machines)
		d := &fit.Requirements{}
		for i := range rapid.IntRange(4, 6).Draw(t, "requests") {
			a := drawAlternative(t, n)
			if rapid.IntRange(0, 3).Draw(t, "team") == 0 {
				a = alternativeFor(n, 2, gpu.Whole, "")
			}
			d.Requests = append(d.Requests, fit.Request{Name: fmt.Sprintf("claim/%d", i), Alternatives: []fit.Alternative{a}})
		}
		if rapid.IntRange(0, 3).Draw(t, "constrained") == 0 {
			d.Constraints = []fit.Constraint{drawConstraint(t, n, d)}
		}
		_, want := fit.ChooseBySearch(n, d)
		choice, ok := fit.Choose(n, d, nil)
		if ok != want {
			t.Fatalf("%s: served %v, want %v", describe(n, d), ok, want)
		}
		if !ok {
			return
		}
		if err := valid(n, d, choice); err != nil {
			t.Fatalf("%s: %v: %v", describe(n, d), choice, err)
		}
	})
}

func describe(n *fit.Node, req *fit.Requirements) string {
	text := ""
	for i, g := range n.GPUs {
		text += fmt.Sprintf("gpu %d: %v %v %v withheld %v; ", i, g.Occupancy.Shape(), g.Occupancy.Placements(), g.Occupancy.Shared(), g.Occupancy.Withheld())
	}
	for _, r := range req.Requests {
		for _, a := range r.Alternatives {
			text += fmt.Sprintf("%s %d x %s, ", r.Name, a.Count, a.Description)
		}
	}
	for _, c := range req.Constraints {
		text += fmt.Sprintf("%s distinct %v %v, ", c.Attribute, c.Distinct, c.Members)
	}
	return text
}
