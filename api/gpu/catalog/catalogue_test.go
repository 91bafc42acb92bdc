package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// TestGeometry compares the catalogue with totals that were counted in published dumps and not in its files: placements per
// GPU, and the binding engine kinds.
func TestGeometry(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		slices, placements int
		binding            []gpu.Engine
	}{
		"a100-40":       {8, 25, []gpu.Engine{gpu.OFA}},
		"a100-80":       {8, 25, []gpu.Engine{gpu.OFA}},
		"a30-24":        {4, 13, []gpu.Engine{gpu.OFA}},
		"h100-80":       {8, 25, []gpu.Engine{gpu.OFA}},
		"h200-141":      {8, 25, []gpu.Engine{gpu.OFA}},
		"b200-180":      {8, 25, []gpu.Engine{gpu.OFA}},
		"gb200-186":     {8, 25, []gpu.Engine{gpu.OFA}},
		"b300-270":      {8, 25, []gpu.Engine{gpu.OFA}},
		"rtxpro6000-96": {12, 30, []gpu.Engine{gpu.OFA, gpu.Decoder}},
		"l40s-48":       {},
		"t4-16":         {},
		"v100-16":       {},
	}
	models, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	if len(models) != len(tests) {
		t.Errorf("catalogue has %d models, the table %d", len(models), len(tests))
	}
	for name, want := range tests {
		g := gputest.Geometry(t, name)
		placements := 0
		for _, p := range g.Profiles() {
			placements += len(g.Placements(p.ID))
			if p.MaxInstances > len(p.Starts) {
				t.Errorf("%s: %s allows %d instances at %d placements", name, p.Name, p.MaxInstances, len(p.Starts))
			}
		}
		if g.Slices() != want.slices || placements != want.placements {
			t.Errorf("%s: %d slices, %d placements, want %d, %d", name, g.Slices(), placements, want.slices, want.placements)
		}
		if diff := cmp.Diff(want.binding, g.BindingEngines()); diff != "" {
			t.Errorf("%s: binding engines (-want +got):\n%s", name, diff)
		}
	}
}

// TestSpan checks that every GPU instance can hold one compute instance with all its SMs, and that the small profile of a B300
// lists a smaller compute instance first.
func TestSpan(t *testing.T) {
	t.Parallel()
	models, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models {
		for _, p := range m.Profiles {
			most := p.Compute[len(p.Compute)-1]
			if most.Multiprocessors != p.Multiprocessors || most.Slices != p.ComputeSlices || len(most.Starts) != 1 {
				t.Errorf("%s %s: largest compute instance %+v does not span %d SMs", m.Name, p.Name, most, p.Multiprocessors)
			}
		}
	}
	b300, err := catalog.FindModel("b300-270")
	if err != nil {
		t.Fatal(err)
	}
	want := []catalog.Compute{{Enum: 0, ID: 0, Slices: 1, Multiprocessors: 18, Starts: []int{0}}, {Enum: 7, ID: 7, Slices: 1, Multiprocessors: 30, Starts: []int{0}}}
	if diff := cmp.Diff(want, b300.Profiles[2].Compute); diff != "" {
		t.Errorf("compute instances of 1g.67gb (-want +got):\n%s", diff)
	}
}

// TestMachines checks that every machine can be built and that both ends of a link report the same connection.
func TestMachines(t *testing.T) {
	t.Parallel()
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		node := gputest.Node(t, m.Name)
		for i, g := range node.GPUs {
			total := 0
			for j, peer := range node.GPUs {
				if g.Links[j] != peer.Links[i] {
					t.Errorf("%s: link %d-%d is %d, back %d", m.Name, i, j, g.Links[j], peer.Links[i])
				}
				total += g.Links[j].NVLinks()
			}
			model, err := catalog.FindModel(m.GPUs[i].Model)
			if err != nil {
				t.Fatal(err)
			}
			if !m.NVSwitch && total > model.NVLinks {
				t.Errorf("%s: GPU %d uses %d NVLinks, %s has %d", m.Name, i, total, model.Name, model.NVLinks)
			}
		}
	}
}

func TestTopology(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		islands []int
		links   []gpu.Link
	}{
		"h100x2":      {[]int{0, 0}, []gpu.Link{gpu.LinkSelf, gpu.NVLinks(18)}},
		"t4x1":        {[]int{-1}, []gpu.Link{gpu.LinkSelf}},
		"a30x4l40sx4": {[]int{0, 0, 2, 2, -1, -1, -1, -1}, []gpu.Link{gpu.LinkSelf, gpu.NVLinks(4), gpu.LinkNode, gpu.LinkNode, gpu.LinkSystem, gpu.LinkSystem, gpu.LinkSystem, gpu.LinkSystem}},
		"dgx1":        {[]int{0, 0, 0, 0, 0, 0, 0, 0}, []gpu.Link{gpu.LinkSelf, gpu.NVLinks(1), gpu.NVLinks(1), gpu.NVLinks(2), gpu.NVLinks(2), gpu.LinkSystem, gpu.LinkSystem, gpu.LinkSystem}},
	}
	for machine, want := range tests {
		node := gputest.Node(t, machine)
		if diff := cmp.Diff(want.islands, node.Islands()); diff != "" {
			t.Errorf("%s: islands (-want +got):\n%s", machine, diff)
		}
		if diff := cmp.Diff(want.links, node.GPUs[0].Links); diff != "" {
			t.Errorf("%s: links of GPU 0 (-want +got):\n%s", machine, diff)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	if _, err := catalog.FindModel("h100"); err == nil {
		t.Error("FindModel accepted an unknown name")
	}
	if _, err := catalog.FindMachine("h100x3"); err == nil {
		t.Error("FindMachine accepted an unknown name")
	}
}
