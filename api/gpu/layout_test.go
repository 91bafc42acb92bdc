package gpu_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// multisets returns all multisets of profiles that an empty GPU can hold. It tries every placement at every memory slice, in
// ascending order of start. The key is the sorted list of profile ids.
func multisets(g *gpu.Geometry) map[string][]int {
	found := map[string][]int{}
	var all []gpu.Placement
	for _, p := range g.Profiles() {
		all = append(all, g.Placements(p.ID)...)
	}
	var pack func(o gpu.Occupancy, from int, held []int)
	pack = func(o gpu.Occupancy, from int, held []int) {
		sorted := slices.Sorted(slices.Values(held))
		found[fmt.Sprint(sorted)] = sorted
		for _, p := range all {
			if p.Start < from {
				continue
			}
			if next, err := o.Take(gpu.Use{Shape: gpu.MIG, Placement: p}); err == nil {
				pack(next, p.Start+1, append(slices.Clone(held), p.Profile))
			}
		}
	}
	pack(g.Empty(), 0, nil)
	return found
}

// TestLayout compares Layout with brute force on every geometry: a multiset that some packing holds is laid out. With one more
// profile it is laid out if and only if that is also a packing.
func TestLayout(t *testing.T) {
	t.Parallel()
	models, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range models {
		g := gputest.Geometry(t, model.Name)
		if g == nil {
			continue
		}
		known := multisets(g)
		tried := map[string]bool{}
		for _, multiset := range known {
			check(t, model.Name, g, known, multiset, tried)
			for _, p := range g.Profiles() {
				check(t, model.Name, g, known, append(slices.Clone(multiset), p.ID), tried)
			}
		}
		t.Logf("%s: %d multisets fit, %d were tried", model.Name, len(known), len(tried))
	}
}

func check(t *testing.T, model string, g *gpu.Geometry, known map[string][]int, multiset []int, tried map[string]bool) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(multiset))
	key := fmt.Sprint(sorted)
	if tried[key] {
		return
	}
	tried[key] = true
	got, err := g.Layout(g.Empty(), multiset)
	if _, fits := known[key]; !fits {
		if !errors.Is(err, gpu.ErrOccupied) {
			t.Fatalf("%s: %v: got %v, %v; it does not fit", model, key, got, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v: %v", model, key, err)
	}
	var laid []int
	o := g.Empty()
	for _, p := range got {
		laid = append(laid, p.Profile)
		if o, err = o.Take(gpu.Use{Shape: gpu.MIG, Placement: p}); err != nil {
			t.Fatalf("%s: %v laid out as %v: %v", model, key, got, err)
		}
	}
	slices.Sort(laid)
	if diff := cmp.Diff(sorted, laid, cmp.Transformer("nil", func(s []int) []int { return append([]int{}, s...) })); diff != "" {
		t.Fatalf("%s: %v laid out as %v (-want +got):\n%s", model, key, got, diff)
	}
}

func TestLayoutWithExistingDevices(t *testing.T) {
	t.Parallel()
	g := gputest.Geometry(t, "h100-80")
	held, err := g.Empty().Take(gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 9, Start: 0, Size: 4}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := g.Layout(held, []int{19, 14})
	if err != nil {
		t.Fatal(err)
	}
	want := []gpu.Placement{{Profile: 14, Start: 4, Size: 2}, {Profile: 19, Start: 6, Size: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with a 3g.40gb at 0 (-want +got):\n%s", diff)
	}
	if _, err := g.Layout(held, []int{5}); !errors.Is(err, gpu.ErrOccupied) || err.Error() != "lay out 1 x 4g.40gb: no order of placements fits: occupied" {
		t.Errorf("a 4g.40gb in addition: %v", err)
	}
	if _, err := g.Layout(held, []int{77}); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("an unknown profile: %v", err)
	}
}
