package fit_test

import (
	"math"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// TestWeights reads off an empty GPU which profiles are expected: how much of it they can fill.
func TestWeights(t *testing.T) {
	t.Parallel()
	g := gputest.Geometry(t, "h100-80")
	const free = (7 + 8 + 6 + 8 + 4 + 8) * fit.Unit
	tests := map[string]struct {
		shares map[string]float64
		// want is the number of slices.
		want int32
	}{
		"none":                 {nil, 0},
		"small ones":           {map[string]float64{"1g.10gb": 1}, 7},
		"all":                  {map[string]float64{"1g.10gb": 1, "1g.20gb": 1}, 8},
		"a variant":            {map[string]float64{"1g.10gb+me": 1}, 1},
		"pairs":                {map[string]float64{"2g.20gb": 3}, 6},
		"large ones":           {map[string]float64{"4g.40gb": 2}, 4},
		"half of the average":  {map[string]float64{"4g.40gb": 0.75, "7g.80gb": 0.25}, 8},
		"less than half of it": {map[string]float64{"4g.40gb": 0.76, "7g.80gb": 0.24}, 4},
		"zero and others":      {map[string]float64{"4g.40gb": 1, "7g.80gb": 0}, 4},
		"nothing but zero":     {map[string]float64{"1g.10gb": 0}, 0},
		"what no profile has":  {map[string]float64{"9g": 5}, 0},
		"what is no number":    {map[string]float64{"7g.80gb": math.NaN(), "4g.40gb": math.Inf(1), "3g.40gb": -1}, 0},
	}
	for name, test := range tests {
		kind := fit.NewKind(g, fit.Weights{Profiles: test.shares})
		if got := kind.Value(kind.Empty()) - free; got != test.want*fit.Packed {
			t.Errorf("%s: %v slices of an empty GPU can be filled, want %d", name, float64(got)/fit.Packed, test.want)
		}
	}
}

// TestPacked compares the value of every state that a GPU can reach with the most that placements of the
// expected profiles can fill, found by taking them one by one.
func TestPacked(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"h100-80", "a30-24", "rtxpro6000-96"} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			g := gputest.Geometry(t, model)
			shares, expected := map[string]float64{}, []gpu.Profile(nil)
			for i, p := range g.Profiles() {
				if i%2 == 0 || strings.Contains(p.Name, "+me.all") {
					shares[p.Name] = 1
					expected = append(expected, p)
				}
			}
			plain, kind := fit.NewKind(g, fit.Weights{}), fit.NewKind(g, fit.Weights{Profiles: shares})
			known := map[fit.State]int{}
			for _, o := range reachable(t, g) {
				s := kind.State(o)
				if got, want := kind.Value(s)-plain.Value(plain.State(o)), int32(fit.Packed*fill(t, kind, o, expected, known)); got != want {
					t.Fatalf("%v: what can be filled is worth %d, want %d", o.Placements(), got, want)
				}
				for _, p := range g.Profiles() {
					for i, option := range kind.Options(s, p.ID) {
						if option.Loss != kind.Value(s)-kind.Value(option.Next) || i > 0 && option.Loss < kind.Options(s, p.ID)[i-1].Loss {
							t.Fatalf("%v, %v: loss %d", o.Placements(), option.Placement, option.Loss)
						}
					}
				}
			}
		})
	}
}

// fill returns the most slices that placements of the profiles can take at the same time.
func fill(t *testing.T, kind *fit.Kind, o gpu.Occupancy, profiles []gpu.Profile, known map[fit.State]int) int {
	t.Helper()
	if n, ok := known[kind.State(o)]; ok {
		return n
	}
	most := 0
	for _, p := range profiles {
		for _, placement := range kind.Geometry.Open(o, p.ID) {
			next, err := o.Take(mig(placement))
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, p.Size+fill(t, kind, next, profiles, known))
		}
	}
	known[kind.State(o)] = most
	return most
}

// What is known of the demand decides between placements that block about as much. Where 1g with double
// memory is requested, which alone can use the last memory slice next to others, 1g leaves it its place; where it
// is not, 2g leaves that to 3g, which alone can use the last slice then.
func TestKnownDemandChangesTheChoice(t *testing.T) {
	t.Parallel()
	g := gputest.Geometry(t, "h100-80")
	all := map[string]float64{"1g.10gb": 1, "1g.20gb": 1, "2g.20gb": 1, "3g.40gb": 1, "4g.40gb": 1, "7g.80gb": 1}
	some := map[string]float64{"1g.10gb": 1, "2g.20gb": 1, "3g.40gb": 1}
	tests := map[string]struct {
		shares  map[string]float64
		profile string
		want    int
	}{
		"1g, nothing known":       {nil, "1g.10gb", 6},
		"1g, all requested":       {all, "1g.10gb", 5},
		"2g, nothing known":       {nil, "2g.20gb", 4},
		"2g, no 1g double memory": {some, "2g.20gb", 2},
	}
	for name, test := range tests {
		kind := fit.NewKind(g, fit.Weights{Profiles: test.shares})
		for _, p := range g.Profiles() {
			if option, _ := kind.Best(kind.Empty(), p.ID); p.Name == test.profile && option.Placement.Start != test.want {
				t.Errorf("%s: starts at %d, want %d", name, option.Placement.Start, test.want)
			}
		}
	}
}
