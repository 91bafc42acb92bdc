package fit_test

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

func mig(p gpu.Placement) gpu.Use { return gpu.Use{Shape: gpu.MIG, Placement: p} }

// reachable returns every occupancy that placements can reach, one per set of slices and engines.
func reachable(t *testing.T, g *gpu.Geometry) []gpu.Occupancy {
	t.Helper()
	type key struct {
		mask    gpu.Mask
		engines gpu.Engines
	}
	seen := map[key]bool{}
	var all []gpu.Occupancy
	var walk func(gpu.Occupancy)
	walk = func(o gpu.Occupancy) {
		k := key{o.Taken(), o.Engines()}
		if seen[k] {
			return
		}
		seen[k] = true
		all = append(all, o)
		for _, p := range g.Profiles() {
			for _, placement := range g.Open(o, p.ID) {
				next, err := o.Take(mig(placement))
				if err != nil {
					t.Fatal(err)
				}
				walk(next)
			}
		}
	}
	walk(g.Empty())
	return all
}

// value is V by definition, from the occupancy alone.
func value(g *gpu.Geometry, o gpu.Occupancy, weight func(gpu.Profile) int32) int32 {
	var v int32
	for _, p := range g.Profiles() {
		v += weight(p) * int32(len(g.Open(o, p.ID)))
	}
	return v
}

// shared is the weight of a profile that shares its placements with as many variants as there are.
func shared(g *gpu.Geometry) func(gpu.Profile) int32 {
	return func(p gpu.Profile) int32 {
		variants := 0
		for _, other := range g.Profiles() {
			if other.Size == p.Size && slices.Equal(other.Starts, p.Starts) {
				variants++
			}
		}
		return int32(p.Size * fit.Unit / variants)
	}
}

// TestTablesAgreeWithTheModel compares, for every state that a GPU can reach and every profile, the
// tables with what taking the placements one by one leaves.
func TestTablesAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"a100-40", "a100-80", "h100-80", "h200-141", "b200-180", "a30-24", "rtxpro6000-96"} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			g := gputest.Geometry(t, model)
			kind, weight := fit.NewKind(g, fit.Weights{}), shared(g)
			for _, o := range reachable(t, g) {
				state, before := kind.State(o), value(g, o, weight)
				if got := kind.Value(state); got != before {
					t.Fatalf("%v: value %d, want %d", o.Placements(), got, before)
				}
				for _, p := range g.Profiles() {
					compare(t, kind, o, p, before)
				}
			}
		})
	}
}

func compare(t *testing.T, kind *fit.Kind, o gpu.Occupancy, p gpu.Profile, before int32) {
	t.Helper()
	g := kind.Geometry
	weight := shared(g)
	var want []fit.Option
	for _, placement := range g.Open(o, p.ID) {
		next, err := o.Take(mig(placement))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fit.Option{Placement: placement, Next: kind.State(next), Loss: before - value(g, next, weight)})
		if back := kind.Release(kind.State(next), placement); back != kind.State(o) {
			t.Errorf("%v without %v: state %d, want %d", next.Placements(), placement, back, kind.State(o))
		}
	}
	fromEmpty := func(o fit.Option) int32 {
		next, err := g.Empty().Take(mig(o.Placement))
		if err != nil {
			t.Fatal(err)
		}
		return -value(g, next, weight)
	}
	slices.SortFunc(want, func(a, b fit.Option) int {
		return cmp.Or(cmp.Compare(a.Loss, b.Loss), cmp.Compare(fromEmpty(a), fromEmpty(b)), cmp.Compare(b.Placement.Start, a.Placement.Start))
	})
	got := kind.Options(kind.State(o), p.ID)
	if diff := gocmp.Diff(want, slices.Clone(got)); diff != "" {
		t.Errorf("%v, options of %s (-want +got):\n%s", o.Placements(), p.Name, diff)
	}
	best, ok := kind.Best(kind.State(o), p.ID)
	if ok != (len(want) > 0) || ok && best != want[0] {
		t.Errorf("%v, best of %s: %v %v, want the first of %v", o.Placements(), p.Name, best, ok, want)
	}
}
