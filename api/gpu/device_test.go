package gpu_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

var everyShape = []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.VFIO, gpu.Monitor}

// TestModes checks which shapes a GPU offers without a reset: before Hopper those of its current MIG mode, from Hopper on all
// of them.
func TestModes(t *testing.T) {
	t.Parallel()
	notMIG := []gpu.Shape{gpu.TimeShare, gpu.MPS, gpu.Whole, gpu.Monitor}
	onlyMIG := []gpu.Shape{gpu.MIG, gpu.Monitor}
	all := []gpu.Shape{gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Whole, gpu.Monitor}
	tests := []struct {
		machine string
		mode    gpu.Mode
		want    []gpu.Shape
	}{
		{"a100x8", gpu.ModeDisabled, notMIG},
		{"a100x8", gpu.ModeEnabled, onlyMIG},
		{"a30x4l40sx4", gpu.ModeDisabled, notMIG},
		{"a30x4l40sx4", gpu.ModeEnabled, onlyMIG},
		{"h100x8", gpu.ModeDisabled, all},
		{"h100x8", gpu.ModeEnabled, all},
		{"b200x8", gpu.ModeDisabled, all},
		{"rtxpro6000x4", gpu.ModeEnabled, all},
		{"t4x1", gpu.ModeUnsupported, notMIG},
		{"dgx1", gpu.ModeUnsupported, notMIG},
	}
	for _, test := range tests {
		g := gputest.Node(t, test.machine).GPUs[0]
		g.Mode = test.mode
		// The mode after the next reset (Pending) has no effect.
		for _, g.Pending = range []gpu.Mode{gpu.ModeDisabled, gpu.ModeEnabled} {
			var got []gpu.Shape
			for _, u := range g.Uses(gpu.Offer{Shapes: everyShape}) {
				got = append(got, u.Shape)
			}
			if diff := cmp.Diff(test.want, slices.Compact(got)); diff != "" {
				t.Errorf("%s with MIG %v (-want +got):\n%s", test.machine, test.mode, diff)
			}
		}
	}
	bare := gpu.GPU{UUID: "GPU-1", ComputeMajor: 9, Mode: gpu.ModeEnabled}
	if diff := cmp.Diff([]gpu.Use{whole(gpu.Monitor)}, bare.Uses(gpu.Offer{Shapes: everyShape})); diff != "" {
		t.Errorf("a GPU with MIG on, of which no profile is known (-want +got):\n%s", diff)
	}
	sandbox := gpu.GPU{PCI: "0000:1b:00.0", IOMMUGroup: "31"}
	if diff := cmp.Diff([]gpu.Use{whole(gpu.VFIO)}, sandbox.Uses(gpu.Offer{Shapes: everyShape})); diff != "" {
		t.Errorf("a GPU without a driver, with an IOMMU group (-want +got):\n%s", diff)
	}
	silent := gpu.GPU{PCI: "0000:1b:00.0", Lost: true}
	if got := silent.Uses(gpu.Offer{Shapes: everyShape}); len(got) != 0 {
		t.Errorf("a GPU that was never read is offered as %v", got)
	}
	never := gpu.GPU{PCI: "0000:01:00.0", Lost: true}
	if uses := never.Uses(gpu.Offer{Shapes: everyShape}); len(uses) > 0 {
		t.Errorf("a GPU that was lost before it was read is offered as %v", uses)
	}
}

func TestOffer(t *testing.T) {
	t.Parallel()
	g := gputest.Node(t, "h100x8").GPUs[0]
	tests := map[string]struct {
		offer gpu.Offer
		want  []string
	}{
		"nothing":       {gpu.Offer{}, nil},
		"whole GPUs":    {gpu.Offer{Shapes: []gpu.Shape{gpu.Whole}, Profiles: []string{"1g.10gb"}}, []string{"gpu"}},
		"some profiles": {gpu.Offer{Shapes: []gpu.Shape{gpu.MIG, gpu.Whole}, Profiles: []string{"7g.80gb", "3g.40gb"}}, []string{"profile 9 at slices 4-7", "profile 9 at slices 0-3", "profile 0 at slices 0-7", "gpu"}},
		"no such":       {gpu.Offer{Shapes: []gpu.Shape{gpu.MIG}, Profiles: []string{"1g.5gb"}}, nil},
		"a shape twice": {gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.Whole, gpu.None}}, []string{"gpu"}},
	}
	for name, test := range tests {
		var got []string
		for _, u := range g.Uses(test.offer) {
			got = append(got, u.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "a30x4l40sx4")
	var got []string
	for _, d := range node.Devices(gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG}, Profiles: []string{"4g.24gb"}}) {
		got = append(got, fmt.Sprintf("%s %v", d.GPU, d.Use))
	}
	var want []string
	for _, g := range node.GPUs {
		use := "gpu"
		if g.Mode == gpu.ModeEnabled {
			use = "profile 0 at slices 0-3"
		}
		want = append(want, g.Name()+" "+use)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUsesProperties checks on every machine that Uses is an ordered subset of AllUses, without duplicates, that every use is
// legal, and that smaller uses come first.
func TestUsesProperties(t *testing.T) {
	t.Parallel()
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	var gpus []gpu.GPU
	for _, m := range machines {
		gpus = append(gpus, gputest.Node(t, m.Name).GPUs...)
	}
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom(gpus).Draw(t, "GPU")
		uses := g.Uses(gpu.Offer{Shapes: rapid.SliceOfDistinct(rapid.SampledFrom(everyShape), rapid.ID[gpu.Shape]).Draw(t, "shapes")})
		all, seen, size := g.AllUses(), map[gpu.Use]bool{}, 0
		for _, u := range uses {
			if seen[u] || !slices.Contains(all, u) {
				t.Fatalf("%v: twice, or not in the table", u)
			}
			seen[u] = true
			cost, err := g.Geometry.Cost(u)
			if err != nil {
				t.Fatal(err)
			}
			if u.Shape != gpu.Monitor && cost.Slices.Count() < size {
				t.Fatalf("%v comes after what is larger: %v", u, uses)
			}
			size = cost.Slices.Count()
		}
		if order := slices.IsSortedFunc(uses, func(a, b gpu.Use) int { return slices.Index(all, a) - slices.Index(all, b) }); !order {
			t.Fatalf("not in the order of the table: %v", uses)
		}
	})
}
