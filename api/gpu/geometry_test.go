package gpu_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

func TestNewGeometryRefuses(t *testing.T) {
	t.Parallel()
	fine := gpu.Profile{ID: 19, Name: "1g.10gb", Size: 1, Starts: []int{0}}
	with := func(change func(*gpu.Profile)) []gpu.Profile {
		p := gpu.Profile{ID: 14, Name: "2g.20gb", Size: 2, Starts: []int{0, 2, 4}}
		change(&p)
		return []gpu.Profile{fine, p}
	}
	tests := map[string]struct {
		profiles []gpu.Profile
		want     string
	}{
		"no name":              {with(func(p *gpu.Profile) { p.Name = "" }), "profile id 14: no name"},
		"no size":              {with(func(p *gpu.Profile) { p.Size = 0 }), `profile "2g.20gb" (id 14): no legal placement`},
		"no start":             {with(func(p *gpu.Profile) { p.Starts = nil }), "no legal placement"},
		"a negative start":     {with(func(p *gpu.Profile) { p.Starts = []int{2, -1} }), "placement outside memory slices 0..15"},
		"beyond the mask":      {with(func(p *gpu.Profile) { p.Starts = []int{0, 15} }), "placement outside memory slices 0..15"},
		"an id that is taken":  {with(func(p *gpu.Profile) { p.ID = 19 }), `profile id 19 of "2g.20gb": listed twice`},
		"an enormous start":    {with(func(p *gpu.Profile) { p.Starts = []int{1 << 62}; p.Size = 1 << 62 }), "placement outside"},
		"an enormous instance": {with(func(p *gpu.Profile) { p.Size = 1 << 62 }), "placement outside"},
	}
	for name, test := range tests {
		if g, err := gpu.NewGeometry(test.profiles); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v, want %q", name, g, err, test.want)
		}
	}
}

func TestNewGeometry(t *testing.T) {
	t.Parallel()
	g, err := gpu.NewGeometry([]gpu.Profile{
		{ID: 0, Name: "7g.80gb", ComputeSlices: 7, Size: 8, Starts: []int{0}, Engines: gpu.Engines{OFA: 1, Copy: 8}},
		{ID: 15, Name: "1g.20gb", ComputeSlices: 1, Size: 2, Starts: []int{6, 0, 2, 0}},
		{ID: 14, Name: "2g.20gb", ComputeSlices: 2, Size: 2, Starts: []int{4, 2, 0}, Engines: gpu.Engines{Copy: 9}},
		{ID: 20, Name: "1g.10gb+me", ComputeSlices: 1, Size: 1, Starts: []int{15}},
		{ID: 19, Name: "1g.10gb", ComputeSlices: 1, Size: 1, Starts: []int{0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for _, p := range g.Profiles() {
		ids = append(ids, p.ID)
	}
	if diff := cmp.Diff([]int{19, 20, 15, 14, 0}, ids); diff != "" {
		t.Errorf("order of profiles (-want +got):\n%s", diff)
	}
	want := []gpu.Placement{{Profile: 15, Start: 0, Size: 2}, {Profile: 15, Start: 2, Size: 2}, {Profile: 15, Start: 6, Size: 2}}
	if diff := cmp.Diff(want, g.Placements(15)); diff != "" {
		t.Errorf("placements of 1g.20gb (-want +got):\n%s", diff)
	}
	if g.Slices() != 16 || g.Capacity() != (gpu.Engines{OFA: 1, Copy: 9}) {
		t.Errorf("%d slices, engines %+v", g.Slices(), g.Capacity())
	}
	if g.Placements(99) != nil || g.ByLoss(99) != nil || g.Open(g.Empty(), 99) != nil {
		t.Error("an unknown profile has placements")
	}
	if _, ok := g.Profile(99); ok {
		t.Error("an unknown profile is there")
	}
}

// TestNewGeometryKeepsItsOwn checks that NewGeometry does not modify the profiles of the caller.
func TestNewGeometryKeepsItsOwn(t *testing.T) {
	t.Parallel()
	profiles := []gpu.Profile{{ID: 1, Name: "b", Size: 2, Starts: []int{2, 0}}, {ID: 2, Name: "a", Size: 1, Starts: []int{0}}}
	g, err := gpu.NewGeometry(profiles)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]gpu.Profile{{ID: 1, Name: "b", Size: 2, Starts: []int{2, 0}}, {ID: 2, Name: "a", Size: 1, Starts: []int{0}}}, profiles); diff != "" {
		t.Errorf("the argument changed (-want +got):\n%s", diff)
	}
	g.Profiles()[0].Name = "changed"
	if g.Profiles()[0].Name != "a" {
		t.Error("the result shares memory with the geometry")
	}
}

func TestNilGeometry(t *testing.T) {
	t.Parallel()
	var g *gpu.Geometry
	if g.Slices() != 0 || g.Capacity() != (gpu.Engines{}) || g.BindingEngines() != nil || g.Profiles() != nil ||
		g.Placements(19) != nil || g.ByLoss(19) != nil || g.Value(0) != 0 || g.Open(g.Empty(), 19) != nil {
		t.Error("a GPU without MIG has something of MIG")
	}
	if total := g.Total(); total != (gpu.Cost{Slices: gpu.SpanMask(0, 1)}) {
		t.Errorf("a GPU without MIG is %+v", total)
	}
	if _, err := g.Legal(gpu.Placement{Profile: 19, Size: 1}); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("placement without MIG: %v", err)
	}
}

func TestGeometryJSON(t *testing.T) {
	t.Parallel()
	for _, m := range models(t) {
		before := gpu.GPU{PCI: "0000:01:00.0", Geometry: gputest.Geometry(t, m)}
		data, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		var after gpu.GPU
		if err := json.Unmarshal(data, &after); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		if diff := cmp.Diff(before.Geometry.Profiles(), after.Geometry.Profiles()); diff != "" {
			t.Errorf("%s (-before +after):\n%s", m, diff)
		}
		if diff := cmp.Diff(before.AllUses(), after.AllUses()); diff != "" {
			t.Errorf("%s: uses (-before +after):\n%s", m, diff)
		}
	}
	for _, wrong := range []string{`{"geometry":{}}`, `{"geometry":[{"id":1}]}`} {
		var g gpu.GPU
		if err := json.Unmarshal([]byte(wrong), &g); err == nil {
			t.Errorf("%s: accepted", wrong)
		}
	}
}

// TestBindingEngines checks which engine kinds need a counter. TestOccupancyProperties, whose model counts all kinds, proves
// that no other kind rejects a placement.
func TestBindingEngines(t *testing.T) {
	t.Parallel()
	tests := map[string][]gpu.Engine{
		"a100-40": {gpu.OFA}, "a100-80": {gpu.OFA}, "a30-24": {gpu.OFA}, "h100-80": {gpu.OFA}, "h200-141": {gpu.OFA}, "b200-180": {gpu.OFA},
		"rtxpro6000-96": {gpu.OFA, gpu.Decoder}, "t4-16": nil,
	}
	for model, want := range tests {
		if diff := cmp.Diff(want, gputest.Geometry(t, model).BindingEngines()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", model, diff)
		}
	}
	none, err := gpu.NewGeometry([]gpu.Profile{{ID: 1, Name: "1g", Size: 1, Starts: []int{0, 1}, Engines: gpu.Engines{Copy: 0}}})
	if err != nil || none.BindingEngines() != nil {
		t.Errorf("no engines at all: %v, %v", none.BindingEngines(), err)
	}
	all, err := gpu.NewGeometry([]gpu.Profile{{ID: 1, Name: "1g", Size: 1, Starts: []int{0, 1}, Engines: gpu.Engines{JPEG: 1}}})
	if diff := cmp.Diff([]gpu.Engine{gpu.JPEG}, all.BindingEngines()); err != nil || diff != "" {
		t.Errorf("two share one engine: %v (-want +got):\n%s", err, diff)
	}
}

// TestBindingEnginesSuffice checks on random geometries that the binding kinds reject exactly the packings that all kinds
// together reject, and that the last binding kind is not redundant.
func TestBindingEnginesSuffice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.IntRange(0, 2)
		var profiles []gpu.Profile
		for id := range rapid.IntRange(1, 4).Draw(t, "profiles") {
			size := rapid.IntRange(1, 3).Draw(t, "size")
			profiles = append(profiles, gpu.Profile{
				ID: id, Name: "p", Size: size, Starts: rapid.SliceOfNDistinct(rapid.IntRange(0, 5-size), 1, 3, rapid.ID[int]).Draw(t, "starts"),
				Engines: gpu.Engines{OFA: few.Draw(t, "OFA"), JPEG: few.Draw(t, "JPEG"), Decoder: few.Draw(t, "decoders"), Encoder: few.Draw(t, "encoders"), Copy: few.Draw(t, "copy")},
			})
		}
		g, err := gpu.NewGeometry(profiles)
		if err != nil {
			t.Fatal(err)
		}
		needed := map[gpu.Engine]bool{}
		walk(g, 0, map[gpu.Engine]int{}, func(used map[gpu.Engine]int) {
			var over []gpu.Engine
			for _, kind := range engines {
				if used[kind] > g.Capacity().Count(kind) {
					over = append(over, kind)
				}
			}
			if len(over) == 0 {
				return
			}
			binding := slices.DeleteFunc(slices.Clone(over), func(kind gpu.Engine) bool { return !slices.Contains(g.BindingEngines(), kind) })
			if len(binding) == 0 {
				t.Fatalf("a packing takes too much of %v, but only %v bind", over, g.BindingEngines())
			}
			if len(binding) == 1 {
				needed[binding[0]] = true
			}
		})
		// An earlier kind can be made redundant by a later one, so only the last is certain to be needed.
		if all := g.BindingEngines(); len(all) > 0 && !needed[all[len(all)-1]] {
			t.Fatalf("%v binds for nothing", all[len(all)-1])
		}
	})
}

// walk calls visit with the engines that each set of non-overlapping placements uses.
func walk(g *gpu.Geometry, slice int, used map[gpu.Engine]int, visit func(map[gpu.Engine]int)) {
	if slice >= g.Slices() {
		visit(used)
		return
	}
	walk(g, slice+1, used, visit)
	for _, p := range g.Profiles() {
		if !slices.Contains(p.Starts, slice) {
			continue
		}
		next := map[gpu.Engine]int{}
		for _, kind := range engines {
			next[kind] = used[kind] + p.Engines.Count(kind)
		}
		walk(g, slice+p.Size, next, visit)
	}
}

// TestManyProfiles checks that a geometry with as many profiles as are permitted is built, although the number of packings grows
// exponentially with the number of memory slices.
func TestManyProfiles(t *testing.T) {
	t.Parallel()
	var profiles []gpu.Profile
	starts := make([]int, gpu.MaxSlices)
	for i := range starts {
		starts[i] = i
	}
	random := rand.New(rand.NewPCG(1, 2))
	for id := range gpu.MaxProfiles {
		profiles = append(profiles, gpu.Profile{ID: id, Name: "1g", Size: 1, Starts: starts, Engines: gpu.Engines{OFA: random.IntN(2), Decoder: random.IntN(8), JPEG: random.IntN(8), Copy: random.IntN(3)}})
	}
	g, err := gpu.NewGeometry(profiles)
	if err != nil || len(g.BindingEngines()) == 0 {
		t.Errorf("%v, %v", g.BindingEngines(), err)
	}
}

// TestTooLargeGeometry checks that profiles beyond a bound, including those with too many different sums of engines, are refused
// after a bounded number of steps.
func TestTooLargeGeometry(t *testing.T) {
	starts := make([]int, gpu.MaxSlices)
	for i := range starts {
		starts[i] = i
	}
	beyond := map[string][]gpu.Profile{}
	for id := range gpu.MaxProfiles + 1 {
		beyond["profiles"] = append(beyond["profiles"], gpu.Profile{ID: id, Name: "1g", Size: 1, Starts: starts})
	}
	for name, engines := range map[string]gpu.Engines{"engines": {OFA: gpu.MaxEngines + 1}, "negative engines": {Copy: -1}} {
		beyond[name] = []gpu.Profile{{ID: 1, Name: "1g", Size: 1, Starts: starts, Engines: engines}}
	}
	for id := range 10 {
		power := gpu.Engines{OFA: 1 << min(id, 7), Decoder: 1 << min(id, 7), Encoder: id * id, JPEG: 3 * id, Copy: 1 << min(id/2, 7)}
		beyond["sums"] = append(beyond["sums"], gpu.Profile{ID: id, Name: "1g", Size: 1, Starts: starts, Engines: power})
	}
	for name, list := range beyond {
		var err error
		steps := testing.AllocsPerRun(1, func() { _, err = gpu.NewGeometry(list) })
		if !errors.Is(err, gpu.ErrTooLarge) || steps > 10_000 {
			t.Errorf("%s: %v after %v allocations", name, err, steps)
		}
	}
}

func TestLoss(t *testing.T) {
	t.Parallel()
	starts := func(g *gpu.Geometry, id int) []int {
		var list []int
		for _, p := range g.ByLoss(id) {
			list = append(list, p.Start)
		}
		return list
	}
	tests := []struct {
		model   string
		profile int
		want    []int
	}{
		// Memory slices 4-6 have less loss than 0-3, which a 4g profile can use. Memory slice 6 has the least: no 2g.20gb can
		// start there.
		{"h100-80", 19, []int{6, 4, 5, 0, 1, 2, 3}},
		{"h100-80", 15, []int{6, 4, 0, 2}},
		{"h100-80", 14, []int{4, 0, 2}},
		{"h100-80", 9, []int{4, 0}},
		{"h100-80", 0, []int{0}},
		{"a30-24", 14, []int{0, 1, 2, 3}},
		{"rtxpro6000-96", 14, []int{0, 3, 6, 9}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, starts(gputest.Geometry(t, test.model), test.profile)); diff != "" {
			t.Errorf("%s, profile %d (-want +got):\n%s", test.model, test.profile, diff)
		}
	}
}

// TestValue compares Value with its definition for every mask, and ByLoss with the order of the values.
func TestValue(t *testing.T) {
	t.Parallel()
	for _, m := range models(t) {
		g := gputest.Geometry(t, m)
		for mask := range gpu.Mask(1) << g.Slices() {
			want := 0
			for _, p := range g.Profiles() {
				for _, start := range p.Starts {
					free := true
					for s := start; s < start+p.Size; s++ {
						free = free && !mask.Has(s)
					}
					if free {
						want += p.Size
					}
				}
			}
			if got := g.Value(mask); got != want {
				t.Fatalf("%s: value of %v is %d, want %d", m, mask, got, want)
			}
		}
		for _, p := range g.Profiles() {
			order := g.ByLoss(p.ID)
			if !slices.IsSortedFunc(order, func(a, b gpu.Placement) int {
				if d := g.Value(b.Mask()) - g.Value(a.Mask()); d != 0 {
					return d
				}
				return a.Start - b.Start
			}) {
				t.Errorf("%s: %s is not in order of loss: %v", m, p.Name, order)
			}
			slices.SortFunc(order, func(a, b gpu.Placement) int { return a.Start - b.Start })
			if diff := cmp.Diff(g.Placements(p.ID), order); diff != "" {
				t.Errorf("%s: %s by loss is not a permutation (-want +got):\n%s", m, p.Name, diff)
			}
		}
	}
}
