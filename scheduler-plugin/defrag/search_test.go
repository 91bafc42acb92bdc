package defrag

import (
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption/victims"
)

// newNode returns a machine of the catalogue whose GPUs are alike.
func newNode(t testing.TB, machine string) fit.Node {
	t.Helper()
	hardware := gputest.Node(t, machine)
	n := fit.Node{Name: "node", Wiring: topology.NewWiring(hardware.GPUs)}
	kind := fit.NewKind(hardware.GPUs[0].Geometry, fit.Weights{})
	position := map[string]int{}
	for i, g := range hardware.GPUs {
		n.GPUs = append(n.GPUs, fit.GPU{Name: g.Name(), Kind: kind, Occupancy: g.Empty(4)})
		position[g.Name()] = i
	}
	for _, d := range hardware.Devices(gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG}}) {
		n.Devices = append(n.Devices, fit.Device{GPU: position[d.GPU], Use: d.Use})
	}
	return n
}

// requires returns the requirements of a pod with one device of a profile on nodes that are alike; of a whole GPU if it is empty.
func requires(n fit.Node, profile string) *fit.Requirements {
	a := fit.Alternative{Candidates: fit.NewSet(len(n.Devices)), Count: 1}
	for i, d := range n.Devices {
		if nameOf(n, d.Use) == profile {
			a.Candidates.Add(i)
		}
	}
	return &fit.Requirements{Requests: []fit.Request{{Name: "claim/request", Alternatives: []fit.Alternative{a}}}}
}

// nameOf returns the name of the profile; empty for a whole GPU.
func nameOf(n fit.Node, u gpu.Use) string {
	if u.Shape != gpu.MIG {
		return ""
	}
	p, _ := n.GPUs[0].Kind.Geometry.Profile(u.Placement.Profile)
	return p.Name
}

// scene is a cluster of equal nodes.
type scene struct {
	*Problem
	node fit.Node
}

func newScene(node fit.Node, nodes int, refused string) scene {
	s := scene{&Problem{}, node}
	for range nodes {
		n := node
		n.GPUs = slices.Clone(node.GPUs)
		s.Nodes = append(s.Nodes, n)
	}
	s.Refused = s.demand(refused)
	return s
}

func (s scene) demand(profile string) Demand {
	r := requires(s.node, profile)
	return Demand{func(int) *fit.Requirements { return r }, func(int) bool { return true }}
}

// on restricts a demand to some nodes.
func (d Demand) on(nodes ...int) Demand {
	d.Runs = func(node int) bool { return slices.Contains(nodes, node) }
	return d
}

// hold takes a device, and returns false if it is not free. With a cost, its holder can be moved.
func (s scene) hold(node, device int, cost *Cost) bool {
	d := s.node.Devices[device]
	g := &s.Nodes[node].GPUs[d.GPU]
	after, err := g.Occupancy.Take(d.Use)
	if err != nil {
		return false
	}
	g.Occupancy = after
	if cost != nil {
		s.Holders = append(s.Holders, Holder{Node: node, Held: []victims.Held{{GPU: d.GPU, Use: d.Use}}, Cost: *cost, Demand: s.demand(nameOf(s.node, d.Use))})
	}
	return true
}

// device returns the device of a profile that begins with a slice of a GPU.
func (s scene) device(t *testing.T, gpuAt int, profile string, start int) int {
	t.Helper()
	i := slices.IndexFunc(s.node.Devices, func(d fit.Device) bool {
		return d.GPU == gpuAt && nameOf(s.node, d.Use) == profile && (profile == "" || int(d.Use.Placement.Start) == start)
	})
	if i < 0 {
		t.Fatalf("no %s at %d", profile, start)
	}
	return i
}

func cost(priority int32, pods int, minutes int) *Cost {
	return &Cost{Priorities: []int32{priority}, Pods: pods, Work: time.Duration(minutes) * time.Minute}
}

// held is a device of a scene.
type held struct {
	node, gpu int
	profile   string
	start     int
	cost      *Cost
}

func TestFind(t *testing.T) {
	const one, three = "1g.10gb", "3g.40gb"
	for name, test := range map[string]struct {
		held    []held
		refused string
		moves   int
		// want are the holders that move, by the order of those with a cost, with their destinations; nil if there is no plan.
		want []Move
	}{
		"it fits": {[]held{{0, 0, one, 0, cost(0, 1, 1)}}, three, 2, []Move{}},
		"one slice in each half": {[]held{{0, 0, one, 0, cost(0, 1, 5)}, {0, 0, one, 6, cost(0, 1, 1)}, {0, 1, "", 0, nil}}, three, 2,
			[]Move{{Holder: 1, Node: 0}}},
		"the one of lower priority": {[]held{{0, 0, one, 0, cost(0, 3, 50)}, {0, 0, one, 6, cost(1, 1, 1)}, {0, 1, "", 0, nil}}, three, 2,
			[]Move{{Holder: 0, Node: 0}}},
		"a claim of fewer pods": {[]held{{0, 0, one, 0, cost(0, 1, 50)}, {0, 0, one, 6, cost(0, 3, 1)}, {0, 1, "", 0, nil}}, three, 2,
			[]Move{{Holder: 0, Node: 0}}},
		"the other one cannot be moved": {[]held{{0, 0, one, 0, cost(9, 9, 50)}, {0, 0, one, 6, nil}, {0, 1, "", 0, nil}}, three, 2,
			[]Move{{Holder: 0, Node: 0}}},
		"to another node": {[]held{{0, 0, three, 0, nil}, {0, 0, one, 4, cost(0, 1, 1)}, {0, 1, "", 0, nil}, {1, 0, "", 0, nil}, {1, 1, three, 0, nil},
			{1, 1, one, 6, nil}}, three, 2, []Move{{Holder: 0, Node: 1}}},
		"where another one makes room": {[]held{
			{0, 0, three, 4, nil}, {0, 0, "2g.20gb", 0, cost(0, 1, 1)}, {0, 1, "", 0, nil}, {1, 0, "", 0, nil}, {1, 1, three, 4, nil}, {1, 1, one, 0, cost(0, 1, 1)},
			{1, 1, one, 2, nil},
		}, three, 2, []Move{{Holder: 0, Node: 1}, {Holder: 1, Node: 1}}},
		"two of one half": {[]held{{0, 0, three, 0, nil}, {0, 0, one, 4, cost(0, 1, 1)}, {0, 0, one, 6, cost(0, 1, 1)}, {0, 1, "", 0, nil}, {1, 0, three, 0, nil},
			{1, 0, one, 4, nil}, {1, 1, "", 0, nil}}, three, 2, []Move{{Holder: 0, Node: 1}, {Holder: 1, Node: 1}}},
		"two are too many": {[]held{{0, 0, three, 0, nil}, {0, 0, one, 4, cost(0, 1, 1)}, {0, 0, one, 6, cost(0, 1, 1)}, {0, 1, "", 0, nil}, {1, 0, three, 0, nil},
			{1, 0, one, 4, nil}, {1, 1, "", 0, nil}}, three, 1, nil},
		"no capacity": {[]held{{0, 0, "", 0, cost(0, 1, 1)}, {0, 1, "", 0, cost(0, 1, 1)}, {1, 0, "", 0, nil}, {1, 1, "", 0, nil}}, one, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(newNode(t, "h100x2"), 2, test.refused)
			if !slices.ContainsFunc(test.held, func(h held) bool { return h.node == 1 }) {
				s.Nodes = s.Nodes[:1]
			}
			for _, h := range test.held {
				if !s.hold(h.node, s.device(t, h.gpu, h.profile, h.start), h.cost) {
					t.Fatalf("%+v is not free", h)
				}
			}
			plan, found, err := Find(s.Problem, test.moves, fit.NewBudget(1_000_000))
			if err != nil || found != (test.want != nil) {
				t.Fatalf("plan %+v, %t, %v", plan, found, err)
			}
			for i := range plan.Moves {
				plan.Moves[i].Choice = fit.Choice{}
			}
			if diff := gocmp.Diff(append([]Move{}, test.want...), append([]Move{}, plan.Moves...)); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlansAreTheCheapest compares with all ways to move at most two holders.
func TestPlansAreTheCheapest(t *testing.T) {
	node := newNode(t, "h100x1")
	profiles := []string{"", "1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb"}
	outcomes := map[int]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(node, rapid.IntRange(1, 3).Draw(t, "nodes"), rapid.SampledFrom(profiles).Draw(t, "refused"))
		for range rapid.IntRange(1, 10).Draw(t, "attempts") {
			var c *Cost
			if rapid.IntRange(0, 3).Draw(t, "movable") > 0 {
				c = cost(rapid.Int32Range(0, 2).Draw(t, "priority"), rapid.IntRange(1, 2).Draw(t, "pods"), rapid.IntRange(0, 2).Draw(t, "minutes"))
			}
			s.hold(rapid.IntRange(0, len(s.Nodes)-1).Draw(t, "node"), rapid.IntRange(0, len(node.Devices)-1).Draw(t, "device"), c)
		}
		nodes := rapid.SliceOfN(rapid.IntRange(0, len(s.Nodes)-1), 1, 3)
		s.Refused = s.Refused.on(nodes.Draw(t, "nodes of the refused pod")...)
		for i := range s.Holders {
			s.Holders[i].Demand = s.Holders[i].Demand.on(nodes.Draw(t, "nodes of a holder")...)
		}
		before := gpusOf(s.Nodes)
		plan, found, err := Find(s.Problem, MaxMoves, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(before, gpusOf(s.Nodes), gocmp.Comparer(func(a, b gpu.Occupancy) bool { return a == b })); diff != "" {
			t.Fatalf("the problem has changed:\n%s", diff)
		}
		want, possible := bruteForce(s)
		switch {
		case found != possible:
			t.Fatalf("found %t, want %t: %+v", found, possible, want)
		case !found:
			outcomes[-1]++
			return
		case plan.Cost.compare(want) != 0:
			t.Fatalf("plan %+v costs more than %+v", plan, want)
		}
		outcomes[len(plan.Moves)]++
		s.verify(t, plan)
	})
	t.Logf("plans by moves: %v", outcomes)
}

// verify carries out the plan.
func (s scene) verify(t *rapid.T, plan Plan) {
	nodes := slices.Clone(s.Nodes)
	for i := range nodes {
		nodes[i].GPUs = slices.Clone(nodes[i].GPUs)
	}
	total := Cost{}
	for _, m := range plan.Moves {
		h := s.Holders[m.Holder]
		total = total.plus(h.Cost)
		for _, held := range h.Held {
			g := &nodes[h.Node].GPUs[held.GPU]
			after, err := g.Occupancy.Release(held.Use)
			if err != nil {
				t.Fatal(err)
			}
			g.Occupancy = after
		}
	}
	take := func(node int, c fit.Choice, r *fit.Requirements) {
		after, err := c.Take(nodes[node], r)
		if err != nil {
			t.Fatalf("plan %+v: %v", plan, err)
		}
		nodes[node] = after
	}
	take(plan.Node, plan.Choice, s.Refused.Requires(plan.Node))
	for _, m := range plan.Moves {
		take(m.Node, m.Choice, s.Holders[m.Holder].Demand.Requires(m.Node))
	}
	if total.compare(plan.Cost) != 0 {
		t.Fatalf("the moves cost %+v, the plan %+v", total, plan.Cost)
	}
}

func gpusOf(nodes []fit.Node) [][]gpu.Occupancy {
	var all [][]gpu.Occupancy
	for _, n := range nodes {
		var here []gpu.Occupancy
		for _, g := range n.GPUs {
			here = append(here, g.Occupancy)
		}
		all = append(all, here)
	}
	return all
}

// bruteForce returns the lowest cost of moving at most two holders, each to any devices.
func bruteForce(s scene) (best Cost, possible bool) {
	consider := func(moving ...int) {
		var total Cost
		nodes := slices.Clone(s.Nodes)
		demands := []Demand{s.Refused}
		for _, i := range moving {
			h := s.Holders[i]
			total = total.plus(h.Cost)
			nodes[h.Node].GPUs = slices.Clone(nodes[h.Node].GPUs)
			for _, held := range h.Held {
				g := &nodes[h.Node].GPUs[held.GPU]
				g.Occupancy, _ = g.Occupancy.Release(held.Use)
			}
			demands = append(demands, h.Demand)
		}
		if (!possible || total.compare(best) < 0) && placeEach(nodes, demands) {
			best, possible = total, true
		}
	}
	consider()
	for i := range s.Holders {
		consider(i)
		for k := range i {
			consider(i, k)
		}
	}
	return best, possible
}

// placeEach tries all devices for each demand.
func placeEach(nodes []fit.Node, demands []Demand) bool {
	if len(demands) == 0 {
		return true
	}
	for i, n := range nodes {
		if !demands[0].Runs(i) {
			continue
		}
		a := demands[0].Requires(i).Requests[0].Alternatives[0]
		for device, d := range n.Devices {
			if !a.Candidates.Has(device) {
				continue
			}
			after, err := n.GPUs[d.GPU].Occupancy.Take(d.Use)
			if err != nil {
				continue
			}
			next := slices.Clone(nodes)
			next[i].GPUs = slices.Clone(n.GPUs)
			next[i].GPUs[d.GPU].Occupancy = after
			if placeEach(next, demands[1:]) {
				return true
			}
		}
	}
	return false
}

// BenchmarkFind searches a cluster of 1,000 nodes with eight GPUs, each of which has an instance in both halves.
func BenchmarkFind(b *testing.B) {
	const one, three = "1g.10gb", "3g.40gb"
	s := newScene(newNode(b, "h100x8"), 1000, three)
	for i, d := range s.node.Devices {
		if name := nameOf(s.node, d.Use); name == one && (d.Use.Placement.Start == 1 || d.Use.Placement.Start == 5) {
			for node := range s.Nodes {
				s.hold(node, i, cost(0, 1, node))
			}
		}
	}
	for b.Loop() {
		budget := fit.NewBudget(40_000_000)
		if plan, found, err := Find(s.Problem, MaxMoves, budget); err != nil || !found || len(plan.Moves) != 1 {
			b.Fatalf("%+v, %t, %v, %d steps", plan, found, err, budget.Spent())
		}
	}
}
