package fit_test

import (
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// TestStateOfWhatIsNoPlacement covers what the walk over placements does not.
func TestStateOfWhatIsNoPlacement(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"h100-80", "rtxpro6000-96", "t4-16"} {
		g := gputest.Geometry(t, model)
		kind := fit.NewKind(g, fit.Weights{})
		if kind.State(g.Empty()) != kind.Empty() {
			t.Errorf("%s: an empty GPU is not empty", model)
		}
		for _, shape := range []gpu.Shape{gpu.Whole, gpu.TimeShare, gpu.MPS, gpu.VFIO} {
			o, err := g.Empty().Take(gpu.Use{Shape: shape})
			if err != nil {
				t.Fatal(err)
			}
			if v := kind.Value(kind.State(o)); v != 0 {
				t.Errorf("%s as %v is worth %d", model, shape, v)
			}
		}
		for slice := range max(1, g.Slices()) {
			o := g.Empty().Withhold(gpu.SpanMask(slice, 1))
			for _, p := range g.Profiles() {
				if got, want := len(kind.Options(kind.State(o), p.ID)), len(g.Open(o, p.ID)); got != want {
					t.Errorf("%s without slice %d: %d options of %s, want %d", model, slice, got, p.Name, want)
				}
			}
		}
		if _, ok := kind.Best(kind.Empty(), 999); ok {
			t.Errorf("%s has profile 999", model)
		}
		if s := kind.Release(kind.Empty(), gpu.Placement{Profile: 999, Size: 1}); s != kind.Empty() {
			t.Errorf("%s: releasing what is not known changes the state", model)
		}
	}
}

// TestAbsurdCounters serves a GPU whose engines are too many to count in a state.
func TestAbsurdCounters(t *testing.T) {
	t.Parallel()
	many := gpu.Engines{Decoder: 80, Encoder: 80, JPEG: 80}
	profile := gpu.Profile{ID: 1, Name: "1g", Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6, 7}, Engines: many}
	g, err := gpu.OfferedGeometry([]gpu.Profile{profile}, gpu.Cost{Slices: gpu.SpanMask(0, 8), Engines: gpu.Engines{Decoder: gpu.MaxEngines, Encoder: gpu.MaxEngines, JPEG: gpu.MaxEngines}})
	if err != nil {
		t.Fatal(err)
	}
	n := &fit.Node{GPUs: []fit.GPU{{Name: "gpu-0", Kind: fit.NewKind(g, fit.Weights{}), Occupancy: g.Empty()}}}
	for _, p := range g.Placements(1) {
		n.Devices = append(n.Devices, fit.Device{Use: mig(p)})
	}
	for held := range 4 {
		for count := 1; count <= 4; count++ {
			choice, ok := fit.Choose(n, demand(alternativeFor(n, count, gpu.MIG, "1g")), nil)
			if ok != (held+count <= 3) || ok && len(choice.Picks[0].Devices) != count {
				t.Errorf("%d with %d held: %v %v", count, held, choice, ok)
			}
		}
		if held < 3 {
			hold(t, n, 0, mig(gpu.Placement{Profile: 1, Start: held, Size: 1}))
		}
	}
}
