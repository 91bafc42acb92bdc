package gpu_test

import (
	"fmt"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// packings has the totals of a walk over all states of a GPU.
type packings struct {
	// States counts the distinct sets of placements, Masks the distinct sets of memory slices that they take.
	States, Masks int
	// Maximal counts the states to which no placement can be added. Multisets counts the maximal states that differ in the
	// profiles they hold and not only in the positions.
	Maximal, Multisets int
}

// TestCountOfPackings visits every state that placements of the given profiles can reach. The expected totals were computed
// independently of this package from published geometries.
func TestCountOfPackings(t *testing.T) {
	t.Parallel()
	classic, withDouble, withMedia := []int{19, 14, 9, 5, 0}, []int{19, 15, 14, 9, 5, 0}, []int{19, 20, 15, 14, 9, 5, 0}
	tests := []struct {
		model    string
		profiles []int
		want     packings
	}{
		{"a100-40", classic, packings{States: 298, Masks: 144, Maximal: 19, Multisets: 14}},
		{"a100-40", withDouble, packings{States: 723, Masks: 192, Maximal: 78, Multisets: 38}},
		{"a100-40", withMedia, packings{States: 2319, Masks: 192, Maximal: 239, Multisets: 64}},
		{"h100-80", withMedia, packings{States: 2319, Masks: 192, Maximal: 239, Multisets: 64}},
		{"b200-180", withMedia, packings{States: 2319, Masks: 192, Maximal: 239, Multisets: 64}},
		{"a30-24", []int{14, 5, 0}, packings{States: 26, Masks: 16, Maximal: 5, Multisets: 4}},
		{"rtxpro6000-96", []int{14, 21, 47, 65, 67, 5, 35, 64, 66, 0, 32}, packings{States: 717, Masks: 16, Maximal: 302, Multisets: 64}},
	}
	for _, test := range tests {
		if got := count(t, gputest.Geometry(t, test.model), test.profiles); got != test.want {
			t.Errorf("%s with %v: %+v, want %+v", test.model, test.profiles, got, test.want)
		}
	}
}

func count(t *testing.T, g *gpu.Geometry, profiles []int) packings {
	t.Helper()
	states, masks, multisets := map[gpu.Occupancy]bool{}, map[gpu.Mask]bool{}, map[string]bool{}
	maximal := 0
	var walk func(gpu.Occupancy)
	walk = func(o gpu.Occupancy) {
		if states[o] {
			return
		}
		states[o], masks[o.Taken()] = true, true
		full := true
		for _, id := range profiles {
			for _, p := range g.Open(o, id) {
				full = false
				next, err := o.Take(gpu.Use{Shape: gpu.MIG, Placement: p})
				if err != nil {
					t.Fatal(err)
				}
				walk(next)
			}
		}
		if full {
			maximal++
			held := map[int]int{}
			for _, p := range o.Placements() {
				held[p.Profile]++
			}
			multisets[fmt.Sprint(held)] = true
		}
	}
	walk(g.Empty())
	return packings{States: len(states), Masks: len(masks), Maximal: maximal, Multisets: len(multisets)}
}

// TestMaxInstances checks for every profile of the catalogue that an empty GPU holds as many instances as the driver reports
// (MaxInstances), independent of the order of placements.
func TestMaxInstances(t *testing.T) {
	t.Parallel()
	for _, m := range models(t) {
		g := gputest.Geometry(t, m)
		for _, p := range g.Profiles() {
			o, n := g.Empty(), 0
			for ; ; n++ {
				open := g.Open(o, p.ID)
				if len(open) == 0 {
					break
				}
				o = take(t, o, gpu.Use{Shape: gpu.MIG, Placement: open[(n*5)%len(open)]})
			}
			if n != p.MaxInstances {
				t.Errorf("%s: %d instances of %s fit, the driver reports %d", m, n, p.Name, p.MaxInstances)
			}
		}
	}
}

// models returns the names of all models of the catalogue.
func models(t *testing.T) []string {
	t.Helper()
	all, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

func take(tb testing.TB, o gpu.Occupancy, u gpu.Use) gpu.Occupancy {
	tb.Helper()
	next, err := o.Take(u)
	if err != nil {
		tb.Fatal(err)
	}
	return next
}
