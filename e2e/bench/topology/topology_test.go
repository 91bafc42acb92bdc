package main

import (
	"io"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

func find(t *testing.T, name string) hardware {
	t.Helper()
	i := slices.IndexFunc(machines(), func(h hardware) bool { return h.name == name })
	if i < 0 {
		t.Fatalf("no machine %q", name)
	}
	return machines()[i]
}

func of(gpus ...int) set {
	var s set
	for _, g := range gpus {
		s |= 1 << g
	}
	return s
}

// From the drawing of a DGX-1: its best pairs have two NVLinks, its best rings of four one in every link,
// and that of all eight has two.
func TestQuality(t *testing.T) {
	t.Parallel()
	j := newJudge(find(t, "DGX-1 mesh, 8 GPUs"))
	tests := map[string]struct {
		set  set
		want float64
	}{
		"one GPU":        {of(5), 1},
		"two NVLinks":    {of(0, 3), 1},
		"one NVLink":     {of(0, 1), .5},
		"over PCIe":      {of(0, 5), 8. / 50},
		"four, NVLinks":  {of(0, 1, 2, 3), 1},
		"four, one PCIe": {of(0, 1, 2, 7), 8. / 25},
		"all":            {of(0, 1, 2, 3, 4, 5, 6, 7), 1},
	}
	for name, test := range tests {
		if got := j.quality(test.set); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: got %.3f, want %.3f", name, got, test.want)
		}
	}
}

// TestChoosers checks on every set of free GPUs that the chosen GPUs are free and of the requested
// number, and that only partitions refuse when there are enough.
func TestChoosers(t *testing.T) {
	t.Parallel()
	for _, h := range machines()[:4] {
		for _, p := range policies(h) {
			for free := range set(1 << len(h.gpus)) {
				for _, k := range teams() {
					taken, ok := p.choose(free, k)
					if ok && (taken.count() != k || taken&^free != 0) {
						t.Fatalf("%s, %s: %d of %b: got %b", h.name, p.name, k, free, taken)
					}
					_, fixed := p.chooser.(blocks)
					if !ok && free.count() >= k && !fixed {
						t.Fatalf("%s, %s: %d of %b: refused", h.name, p.name, k, free)
					}
				}
			}
		}
	}
}

// Our sets are never worse than the best possible.
func TestOurSetsAreBest(t *testing.T) {
	t.Parallel()
	for _, h := range machines()[:4] {
		j, us := newJudge(h), newChoices(h)
		for free := range set(1 << len(h.gpus)) {
			for _, k := range teams() {
				best := 0.0
				free.choose(k, func(s set) { best = max(best, j.quality(s)) })
				if taken, ok := us.choose(free, k); ok && j.quality(taken) < best-1e-9 {
					t.Fatalf("%s: %d of %b: %b has %.3f of %.3f", h.name, k, free, taken, j.quality(taken), best)
				}
			}
		}
	}
}

// The division that go-gpuallocator searches for, by exhaustive search.
func TestPartitions(t *testing.T) {
	t.Parallel()
	p := newPartitions(find(t, "DGX-1 mesh, 8 GPUs"))
	var most func(rest set, k int) int
	most = func(rest set, k int) int {
		best := 0
		if rest.count() >= k {
			rest.choose(k, func(s set) { best = max(best, p.sum(s)+most(rest&^s, k)) })
		}
		return best
	}
	for _, k := range []int{2, 4} {
		p.choose(0b11111111, k)
		if got, want := p.divide(0b11111111, k), most(0b11111111, k); got != want {
			t.Errorf("sets of %d: got %d, want %d", k, got, want)
		}
	}
}

// TestReplay checks on random streams that no GPU is allocated twice and that all are free in the end.
func TestReplay(t *testing.T) {
	t.Parallel()
	h := find(t, "bridge pairs, 8 GPUs")
	j := newJudge(h)
	rapid.Check(t, func(t *rapid.T) {
		all := policies(h)
		p := all[rapid.IntRange(0, len(all)-1).Draw(t, "policy")]
		given := &guard{T: t, chooser: p.chooser}
		p.chooser = given
		source := arrivals.Poisson{Rate: 12, Shares: shares(), Lifetime: arrivals.Exponential, Count: 300}
		stream := source.Stream(rapid.Uint64().Draw(t, "seed"))
		f := newFleet(p, 3, 8)
		got := f.replay(stream, j)
		for node, free := range f.free {
			if free != 0b11111111 {
				t.Fatalf("%s: node %d ends with %b free", p.name, node, free)
			}
		}
		offered := 0
		for i := range teams() {
			offered += got.offered[i]
			if got.accepted[i] > got.offered[i] || got.quality[i] > float64(got.accepted[i])+1e-9 {
				t.Fatalf("%s: %+v", p.name, got)
			}
		}
		if offered != 300-75 || got.acceptance() == 0 {
			t.Fatalf("%s: %+v", p.name, got)
		}
		again := newFleet(p, 3, 8).replay(stream, j)
		if diff := cmp.Diff(got, again, cmp.AllowUnexported(tally{})); diff != "" {
			t.Fatalf("%s: two replays of one stream (-first +second):\n%s", p.name, diff)
		}
	})
}

// guard fails when a policy chooses a GPU that is not free.
type guard struct {
	*rapid.T
	chooser
}

func (g *guard) choose(free set, k int) (set, bool) {
	taken, ok := g.chooser.choose(free, k)
	if ok && taken&^free != 0 {
		g.Fatalf("%b of %b", taken, free)
	}
	return taken, ok
}

// A run has a row for every figure of the goals.
func TestMeasure(t *testing.T) {
	t.Parallel()
	b := &bench{nodes: 2, seeds: 1, count: 200, load: .85}
	h := find(t, "NVSwitch, 8 GPUs")
	b.Report = report.New("topology", io.Discard)
	tallies, err := b.run(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies(h) {
		for i, k := range teams() {
			if got := tallies[p.name].of(i); got != 1 && tallies[p.name].accepted[i] > 0 {
				t.Errorf("%s: sets of %d on NVSwitch have quality %v", p.name, k, got)
			}
		}
	}
}
