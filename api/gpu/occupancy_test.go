package gpu_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

func mig(profile, start, size int) gpu.Use {
	return gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: profile, Start: start, Size: size}}
}

func whole(s gpu.Shape) gpu.Use { return gpu.Use{Shape: s} }

func TestTake(t *testing.T) {
	t.Parallel()
	h100, rtx := gputest.Geometry(t, "h100-80"), gputest.Geometry(t, "rtxpro6000-96")
	tests := map[string]struct {
		geometry *gpu.Geometry
		held     []gpu.Use
		withheld gpu.Mask
		take     gpu.Use
		// want is part of the error, empty for none; kind is what it wraps.
		want string
		kind error
	}{
		"a slice of an empty GPU":        {h100, nil, 0, mig(19, 0, 1), "", nil},
		"two MIG devices":                {h100, []gpu.Use{mig(9, 4, 4)}, 0, mig(9, 0, 4), "", nil},
		"a taken slice":                  {h100, []gpu.Use{mig(19, 2, 1)}, 0, mig(14, 2, 2), "take profile 14 at slices 2-3: memory slices [2] are in use", gpu.ErrOccupied},
		"a withheld slice":               {h100, nil, gpu.SpanMask(5, 2), mig(9, 4, 4), "memory slices [5 6] are withheld", gpu.ErrOccupied},
		"next to a withheld slice":       {h100, nil, gpu.SpanMask(5, 2), mig(19, 4, 1), "", nil},
		"the second +me":                 {h100, []gpu.Use{mig(20, 0, 1)}, 0, mig(20, 6, 1), "needs 1 ofa-engines, 0 left", gpu.ErrOccupied},
		"media of another's +me.all":     {rtx, []gpu.Use{mig(65, 0, 3)}, 0, mig(14, 3, 3), "needs 1 decoders, 0 left", gpu.ErrOccupied},
		"no media with +me.all":          {rtx, []gpu.Use{mig(65, 0, 3)}, 0, mig(67, 3, 3), "", nil},
		"a start that is not legal":      {h100, nil, 0, mig(14, 1, 2), "2g.20gb takes 2 slices from [0 2 4]", gpu.ErrUnsupported},
		"a size that is not legal":       {h100, nil, 0, mig(14, 2, 4), "2g.20gb takes 2 slices", gpu.ErrUnsupported},
		"a negative start":               {h100, nil, 0, mig(19, -1, 1), "takes 1 slices", gpu.ErrUnsupported},
		"a profile of another model":     {h100, nil, 0, mig(21, 0, 1), "no such MIG profile", gpu.ErrUnsupported},
		"MIG on a GPU without":           {nil, nil, 0, mig(19, 0, 1), "no such MIG profile", gpu.ErrUnsupported},
		"no shape":                       {h100, nil, 0, gpu.Use{}, "take idle", gpu.ErrUnsupported},
		"an unknown shape":               {h100, nil, 0, whole(99), "take shape-99", gpu.ErrUnsupported},
		"the whole GPU":                  {h100, nil, 0, whole(gpu.Whole), "", nil},
		"the whole GPU without MIG":      {nil, nil, 0, whole(gpu.Whole), "", nil},
		"the whole GPU twice":            {h100, []gpu.Use{whole(gpu.Whole)}, 0, whole(gpu.Whole), "take gpu: the GPU is in use as gpu", gpu.ErrOccupied},
		"twice without MIG":              {nil, []gpu.Use{whole(gpu.Whole)}, 0, whole(gpu.Whole), "the GPU is in use as gpu", gpu.ErrOccupied},
		"the whole GPU and a MIG device": {h100, []gpu.Use{mig(19, 3, 1)}, 0, whole(gpu.Whole), "the GPU is in use as mig", gpu.ErrOccupied},
		"a slice of a whole GPU":         {h100, []gpu.Use{whole(gpu.Whole)}, 0, mig(19, 3, 1), "the GPU is in use as gpu", gpu.ErrOccupied},
		"the whole GPU with withheld":    {h100, nil, gpu.SpanMask(7, 1), whole(gpu.Whole), "memory slices [7] are withheld", gpu.ErrOccupied},
		"without MIG, but withheld":      {nil, nil, gpu.SpanMask(0, 1), whole(gpu.Whole), "memory slices [0] are withheld", gpu.ErrOccupied},
		"another share":                  {h100, []gpu.Use{whole(gpu.TimeShare), whole(gpu.TimeShare)}, 0, whole(gpu.TimeShare), "", nil},
		"another MPS share without MIG":  {nil, []gpu.Use{whole(gpu.MPS)}, 0, whole(gpu.MPS), "", nil},
		"a share of another shape":       {h100, []gpu.Use{whole(gpu.TimeShare)}, 0, whole(gpu.MPS), "the GPU is in use as timeshare", gpu.ErrOccupied},
		"two virtual machines":           {h100, []gpu.Use{whole(gpu.VFIO)}, 0, whole(gpu.VFIO), "the GPU is in use as vfio", gpu.ErrOccupied},
		"a monitor of a whole GPU":       {h100, []gpu.Use{whole(gpu.Whole)}, 0, whole(gpu.Monitor), "", nil},
		"a monitor of a withheld GPU":    {h100, nil, gpu.SpanMask(0, 8), whole(gpu.Monitor), "", nil},
	}
	for name, test := range tests {
		before := test.geometry.Empty()
		for _, u := range test.held {
			before = take(t, before, u)
		}
		before = before.Withhold(test.withheld)
		after, err := before.Take(test.take)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, test.kind) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if after != before {
			t.Errorf("%s: refused and changed", name)
		}
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	h100 := gputest.Geometry(t, "h100-80")
	tests := map[string]struct {
		held    []gpu.Use
		release gpu.Use
		want    string
	}{
		"nothing held":                     {nil, whole(gpu.Whole), "release gpu: not held, the GPU is idle"},
		"no shape of an idle GPU":          {nil, gpu.Use{}, "release idle: not held"},
		"another shape":                    {[]gpu.Use{whole(gpu.TimeShare)}, whole(gpu.MPS), "release mps: not held, the GPU is timeshare"},
		"a slice of a whole GPU":           {[]gpu.Use{whole(gpu.Whole)}, mig(19, 0, 1), "release profile 19 at slices 0-0: not held, the GPU is gpu"},
		"another slice":                    {[]gpu.Use{mig(19, 0, 1)}, mig(19, 1, 1), "not held"},
		"a small one in a large one":       {[]gpu.Use{mig(14, 0, 2)}, mig(19, 0, 1), "not held"},
		"the inside of a large one":        {[]gpu.Use{mig(14, 0, 2)}, mig(19, 1, 1), "not held"},
		"a large one over small ones":      {[]gpu.Use{mig(19, 0, 1), mig(19, 1, 1)}, mig(14, 0, 2), "not held"},
		"another profile in the same span": {[]gpu.Use{mig(9, 0, 4)}, mig(5, 0, 4), "not held"},
		"what is not legal":                {[]gpu.Use{mig(19, 0, 1)}, mig(19, -1, 1), "takes 1 slices"},
	}
	for name, test := range tests {
		o := h100.Empty()
		for _, u := range test.held {
			o = take(t, o, u)
		}
		after, err := o.Release(test.release)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if after != o {
			t.Errorf("%s: refused and changed", name)
		}
	}
	busy := take(t, h100.Empty(), mig(19, 0, 1))
	if after, err := busy.Release(whole(gpu.Monitor)); err != nil || after != busy {
		t.Errorf("releasing a monitor: %v, changed %v", err, after != busy)
	}
}

func TestWithhold(t *testing.T) {
	t.Parallel()
	h100 := gputest.Geometry(t, "h100-80")
	o := take(t, h100.Empty(), mig(9, 0, 4)).Withhold(gpu.SpanMask(3, 3)).Withhold(gpu.SpanMask(12, 1))
	if o.Withheld() != gpu.SpanMask(3, 3) || o.Taken() != gpu.SpanMask(0, 4) || o.Free() != gpu.SpanMask(6, 2) {
		t.Errorf("withheld %v, taken %v, free %v", o.Withheld(), o.Taken(), o.Free())
	}
	o, err := o.Release(mig(9, 0, 4))
	if err != nil || o.Free() != gpu.SpanMask(0, 3)|gpu.SpanMask(6, 2) || o.Shape() != gpu.None {
		t.Errorf("what was held is not given back: %v, free %v, %v", err, o.Free(), o.Shape())
	}
}

// held is the reference model of the property tests: a list of uses with rules as simple as possible.
type held []gpu.Use

// fits reports whether the use fits next to those held: no memory slice is taken twice, no engine kind beyond its capacity, one
// shape at a time.
func (h held) fits(g *gpu.Geometry, withheld gpu.Mask, u gpu.Use) bool {
	if u.Shape == gpu.Monitor {
		return true
	}
	if u.Shape != gpu.MIG {
		sharing := (u.Shape == gpu.TimeShare || u.Shape == gpu.MPS) && !slices.ContainsFunc(h, func(other gpu.Use) bool { return other.Shape != u.Shape })
		return withheld == 0 && (len(h) == 0 || sharing)
	}
	used := map[gpu.Engine]int{}
	for _, other := range append(slices.Clone(h), u) {
		if other.Shape != gpu.MIG {
			return false
		}
		profile, _ := g.Profile(other.Placement.Profile)
		for _, kind := range engines {
			used[kind] += profile.Engines.Count(kind)
		}
	}
	for s := u.Placement.Start; s < u.Placement.Start+u.Placement.Size; s++ {
		if withheld.Has(s) || slices.ContainsFunc(h, func(other gpu.Use) bool {
			return other.Placement.Start <= s && s < other.Placement.Start+other.Placement.Size
		}) {
			return false
		}
	}
	for _, kind := range engines {
		if used[kind] > g.Capacity().Count(kind) {
			return false
		}
	}
	return true
}

var engines = []gpu.Engine{gpu.OFA, gpu.Decoder, gpu.Encoder, gpu.JPEG, gpu.Copy}

// TestOccupancyProperties runs random sequences of Take and Release on every model and compares each step with the reference
// model.
func TestOccupancyProperties(t *testing.T) {
	t.Parallel()
	geometries := []*gpu.Geometry{nil}
	for _, m := range models(t) {
		geometries = append(geometries, gputest.Geometry(t, m))
	}
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom(geometries).Draw(t, "geometry")
		uses := gpu.GPU{Geometry: g}.AllUses()
		withheld := gpu.Mask(0)
		if rapid.IntRange(0, 3).Draw(t, "withhold") == 0 {
			withheld = gpu.Mask(rapid.Uint16().Draw(t, "withheld")) & g.Total().Slices
		}
		start := g.Empty().Withhold(withheld)
		o, h := start, held{}
		for range 40 {
			if len(h) > 0 && rapid.IntRange(0, 2).Draw(t, "release") == 0 {
				i := rapid.IntRange(0, len(h)-1).Draw(t, "which")
				before := o
				o = released(t, o, h[i])
				if again, err := o.Take(h[i]); err != nil || h[i].Shape == gpu.MIG && again != before {
					t.Fatalf("taking %v again: %v, or another state", h[i], err)
				}
				h = slices.Delete(slices.Clone(h), i, i+1)
			}
			u := rapid.SampledFrom(uses).Draw(t, "use")
			next, err := o.Take(u)
			if fits := h.fits(g, withheld, u); fits != (err == nil) || fits != o.Fits(u) {
				t.Fatalf("%v in addition to %v, withheld %v: fits %v, Fits returns %v, but Take %v", u, h, withheld, fits, o.Fits(u), err)
			}
			if err != nil {
				if !errors.Is(err, gpu.ErrOccupied) {
					t.Fatalf("%v: %v", u, err)
				}
				continue
			}
			if back := released(t, next, u); back != o {
				t.Fatalf("releasing %v does not undo taking it: %+v, was %+v", u, back, o)
			}
			if u.Shape != gpu.Monitor {
				o, h = next, append(h, u)
			}
			agree(t, g, o, h, withheld)
		}
		for _, u := range h {
			o = released(t, o, u)
		}
		if o != start {
			t.Fatalf("after the last release: %+v", o)
		}
	})
}

func released(t *rapid.T, o gpu.Occupancy, u gpu.Use) gpu.Occupancy {
	t.Helper()
	next, err := o.Release(u)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// agree compares everything that an occupancy reports with the reference model.
func agree(t *rapid.T, g *gpu.Geometry, o gpu.Occupancy, h held, withheld gpu.Mask) {
	t.Helper()
	var placements []gpu.Placement
	taken := gpu.Mask(0)
	for _, u := range h {
		if u.Shape == gpu.MIG {
			placements = append(placements, u.Placement)
			if u.Placement.Mask().Overlaps(taken) {
				t.Fatalf("%v overlap", h)
			}
			taken |= u.Placement.Mask()
		} else {
			taken = g.Total().Slices
		}
	}
	slices.SortFunc(placements, func(a, b gpu.Placement) int { return a.Start - b.Start })
	if diff := cmp.Diff(placements, o.Placements()); diff != "" {
		t.Fatalf("placements (-model +occupancy):\n%s", diff)
	}
	shape := gpu.None
	if len(h) > 0 {
		shape = h[0].Shape
	}
	if o.Taken() != taken || o.Shape() != shape || o.Holders() != len(h) || o.Free() != g.Total().Slices&^(taken|withheld) {
		t.Fatalf("%v: taken %v, shape %v, holders %d, free %v", h, o.Taken(), o.Shape(), o.Holders(), o.Free())
	}
	for _, p := range g.Profiles() {
		var open []gpu.Placement
		for _, start := range p.Starts {
			if placement := (gpu.Placement{Profile: p.ID, Start: start, Size: p.Size}); h.fits(g, withheld, gpu.Use{Shape: gpu.MIG, Placement: placement}) {
				open = append(open, placement)
			}
		}
		if diff := cmp.Diff(open, g.Open(o, p.ID)); diff != "" {
			t.Fatalf("open for %s (-model +occupancy):\n%s", p.Name, diff)
		}
	}
}
