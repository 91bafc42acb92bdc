package rank

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// ranking is the result of an order.
type ranking struct {
	Best, Delegated []string
	Choices         map[string]fit.Choice
}

func rankingOf(o *Order) ranking {
	s := ranking{Best: o.Best(math.MaxInt, anywhere), Delegated: o.Delegated(), Choices: map[string]fit.Choice{}}
	for _, name := range s.Best {
		s.Choices[name] = o.OnNode(name, "pod").Choice
	}
	return s
}

// TestOrderEqualsOneFromScratch changes a cluster at random and compares orders that were kept up to date
// with orders that are made then.
func TestOrderEqualsOneFromScratch(t *testing.T) {
	t.Parallel()
	pools := map[string]wire.Pool{}
	for _, machine := range []string{"h100x2", "t4x1", "a30x4l40sx4"} {
		pools[machine] = pool(t, machine, "node")
	}
	rapid.Check(t, func(rt *rapid.T) {
		c := newCluster()
		demands := []*requirements.PodRequirements{c.demand(t, "gpu", 1), c.demand(t, "gpu", 2), c.demand(t, "mig", 1), c.demand(t, "timeshare", 1)}
		kept := New(c.index, 3)
		claims := map[string]*resourceapi.ResourceClaim{}
		for step := range rapid.IntRange(1, 25).Draw(rt, "steps") {
			node := fmt.Sprintf("node-%d", rapid.IntRange(0, 4).Draw(rt, "node"))
			switch rapid.IntRange(0, 5).Draw(rt, "event") {
			case 0:
				c.leave(node)
			case 1, 2:
				c.join(node, pools[rapid.SampledFrom([]string{"h100x2", "t4x1", "a30x4l40sx4"}).Draw(rt, "machine")])
			case 3:
				for name, claim := range claims {
					c.index.DeleteClaim(claim)
					delete(claims, name)
				}
			default:
				d := rapid.SampledFrom(demands).Draw(rt, "held")
				if a := kept.Order(d, nil).OnNode(node, "pod"); a.Fits {
					name := fmt.Sprintf("claim-%d", step)
					claims[name] = c.claim(name, a.Node, a.Choice)
					c.index.SetClaim(claims[name])
				}
			}
			d := rapid.SampledFrom(demands).Draw(rt, "demand")
			got, want := rankingOf(kept.Order(d, nil)), rankingOf(New(c.index, 1).Order(d, nil))
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("order kept up to date (-from scratch +kept):\n%s", diff)
			}
		}
	})
}

func TestBest(t *testing.T) {
	t.Parallel()
	c := newCluster()
	p := pool(t, "h100x2", "node")
	for i := range 9 {
		c.join(fmt.Sprintf("node-%d", i), p)
	}
	d := c.demand(t, "mig", 1, `device.attributes["gpu.tessera.dev"].profile == "1g.10gb"`)
	r := New(c.index, 4)
	empty := r.Order(d, nil)
	all := empty.Best(100, anywhere)
	if len(all) != 9 || empty.Count() != 9 {
		t.Fatalf("best of nine equal nodes: %q, count %d", all, empty.Count())
	}
	if slices.IsSorted(all) {
		t.Errorf("best of equal nodes: in order of name, %q", all)
	}
	visited := 0
	got := empty.Best(2, func(name string) bool { visited++; return name != all[0] })
	if diff := cmp.Diff(all[1:3], got); diff != "" || visited != 3 {
		t.Errorf("best two that are allowed (-want +got), %d visited:\n%s", visited, diff)
	}

	// A GPU that is broken already is the best for the next small one.
	a := empty.OnNode("node-4", "pod")
	c.index.SetClaim(c.claim("claim", a.Node, a.Choice))
	if got := r.Order(d, nil).Best(1, anywhere); len(got) != 1 || got[0] != "node-4" {
		t.Errorf("best with a small instance on node-4: %q", got)
	}
}

func TestOnRereadsChangedNodes(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.join("node", pool(t, "t4x1", "node"))
	c.join("other", pool(t, "t4x1", "other"))
	d := c.demand(t, "gpu", 1)
	order := New(c.index, 1).Order(d, nil)
	before := order.OnNode("node", "pod")
	if !before.Fits || before.Err != nil {
		t.Fatalf("an empty node: %+v", before)
	}
	promised := c.claim("promise", before.Node, before.Choice).Status.Allocation.Devices.Results
	c.index.Nominate("preemptor", "node", promised)
	if a := order.OnNode("node", "pod"); a.Fits {
		t.Errorf("a node nominated for another pod fits: %+v", a.Choice)
	}
	if a := order.OnNode("node", "preemptor"); !a.Fits {
		t.Error("a node promised to the pod itself does not fit")
	}
	if a := order.OnNode("elsewhere", "pod"); a.Fits || a.Node != nil || a.Err != nil {
		t.Errorf("a node that publishes nothing: %+v", a)
	}
	c.leave("other")
	if got := order.Best(2, anywhere); slices.Contains(got, "other") {
		t.Errorf("best after a node is gone: %q", got)
	}
}

func TestDelegated(t *testing.T) {
	t.Parallel()
	c := newCluster()
	p := pool(t, "t4x1", "node")
	c.join("whole", p)
	c.join("torn", p)
	c.index.DeleteSlice(c.slices["torn"][0])
	order := New(c.index, 1).Order(c.demand(t, "gpu", 1), nil)
	if got := order.Delegated(); !slices.Equal(got, []string{"torn"}) || order.Count() != 1 {
		t.Errorf("delegated %q, %d fit", got, order.Count())
	}
	if a := order.OnNode("torn", "pod"); a.Fits || !errors.Is(a.Err, requirements.ErrDelegate) {
		t.Errorf("a node with a pool that is not complete: %+v", a)
	}
}

// TestCost counts the nodes that are judged: all for a new demand, then those that changed.
func TestCost(t *testing.T) {
	t.Parallel()
	c := newCluster()
	p := pool(t, "t4x1", "node")
	for i := range 50 {
		c.join(fmt.Sprintf("node-%02d", i), p)
	}
	judged := 0
	r := New(c.index, 2)
	r.choose = func(n *fit.Node, d *fit.Requirements, b *fit.Budget) (fit.Choice, bool) {
		judged++
		return fit.Choose(n, d, b)
	}
	one, other, third := c.demand(t, "gpu", 1), c.demand(t, "timeshare", 1), c.demand(t, "mig", 1)
	expect := func(step string, d *requirements.PodRequirements, want int) {
		t.Helper()
		judged = 0
		order := r.Order(d, nil)
		order.Best(8, anywhere)
		order.OnNode("node-07", "pod")
		if judged != want {
			t.Errorf("%s: %d nodes judged, want %d", step, judged, want)
		}
	}
	expect("a new demand", one, 50)
	expect("the same again", one, 0)
	expect("another", other, 50)
	a := r.Order(one, nil).OnNode("node-07", "pod")
	claim := c.claim("claim", a.Node, a.Choice)
	c.index.SetClaim(claim)
	expect("a claim more", one, 1)
	c.join("node-50", p)
	c.index.DeleteClaim(claim)
	expect("a node more and a claim less", one, 2)
	expect("the other meanwhile", other, 2)
	expect("a third", third, 51)
	expect("what the third drove out", one, 51)
}

// TestPendingNodesAreEvaluatedLater evaluates nodes with budgets that end after some of them.
func TestPendingNodesAreEvaluatedLater(t *testing.T) {
	t.Parallel()
	c := newCluster()
	p := pool(t, "t4x1", "node")
	for i := range 50 {
		c.join(fmt.Sprintf("node-%02d", i), p)
	}
	d := c.demand(t, "gpu", 1)
	r := New(c.index, 1)
	r.Order(d, nil) // caches the results of selectors
	want := r.Order(d, nil).Best(math.MaxInt, anywhere)
	r = New(c.index, 1)
	r.choose = func(n *fit.Node, d *fit.Requirements, b *fit.Budget) (fit.Choice, bool) {
		if n.Name == "node-33" {
			b.Spend(fit.NodeSteps + 1)
			return fit.Choice{}, false
		}
		b.Spend(fit.NodeSteps / 2)
		return fit.Choose(n, d, nil)
	}
	const nodes = 10
	var order *Order
	for rounds := 1; ; rounds++ {
		b := fit.NewBudget(nodes * fit.NodeSteps)
		order = r.Order(d, b)
		_, pending := order.Unevaluated()
		if b.Spent() > nodes*fit.NodeSteps {
			t.Fatalf("%d steps of %d", b.Spent(), nodes*fit.NodeSteps)
		}
		if pending == 0 {
			break
		}
		if rounds > 50 {
			t.Fatalf("%d nodes are pending after %d rounds", pending, rounds)
		}
	}
	tooComplex, _ := order.Unevaluated()
	if a := order.OnNode("node-33", "pod"); tooComplex != 1 || !a.TooComplex || a.Fits || a.Err != nil {
		t.Errorf("%d nodes are too complex, node-33 has %+v", tooComplex, a)
	}
	want = slices.DeleteFunc(want, func(name string) bool { return name == "node-33" })
	if diff := cmp.Diff(want, order.Best(math.MaxInt, anywhere)); diff != "" {
		t.Errorf("order of the nodes (-at once +in parts):\n%s", diff)
	}

	// A pending node is evaluated when it is looked up, as far as the budget allows.
	r = New(c.index, 1)
	order = r.Order(d, fit.NewBudget(0))
	if a := order.OnNode("node-07", "pod"); a.Fits || !a.TooComplex {
		t.Errorf("without a budget: %+v", a)
	}
	order.budget = nil
	if a := order.OnNode("node-07", "pod"); !a.Fits {
		t.Errorf("with a budget: %+v", a)
	}
}

// TestReadersMeetUpdates reads nodes while the cluster changes, for the race detector, and checks
// that no answer mixes two states: what fits is free on the node that the answer shows.
func TestReadersMeetUpdates(t *testing.T) {
	t.Parallel()
	c := newCluster()
	p := pool(t, "t4x1", "node")
	for i := range 4 {
		c.join(fmt.Sprintf("node-%d", i), p)
	}
	d := c.demand(t, "gpu", 1)
	r := New(c.index, 1)
	order := r.Order(d, nil)
	a := order.OnNode("node-0", "pod")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, name := range order.Best(4, anywhere) {
					seen := order.OnNode(name, "pod")
					free := seen.Node != nil && seen.Node.Fit.GPUs[0].Occupancy.Holders() == 0
					if seen.Fits != free {
						t.Errorf("node %s fits: %t, is free: %t", name, seen.Fits, free)
					}
				}
			}
		})
	}
	for range 200 {
		claim := c.claim("claim", a.Node, a.Choice)
		c.index.SetClaim(claim)
		r.Order(d, nil)
		c.index.DeleteClaim(claim)
		r.Order(d, nil)
	}
	close(done)
	readers.Wait()
}
