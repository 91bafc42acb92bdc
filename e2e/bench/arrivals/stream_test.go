package arrivals

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func poisson(lifetime Lifetime) Poisson {
	return Poisson{Rate: 50, Shares: []float64{0.5, 0, 0.3, 0.2}, Lifetime: lifetime, Count: 200_000}
}

// A drawn stream has the requested shares, rate and mean lifetime.
func TestPoisson(t *testing.T) {
	t.Parallel()
	// The mean of a heavy tail depends on few demands.
	for name, test := range map[string]struct {
		lifetime  Lifetime
		tolerance float64
	}{"exponential": {Exponential, 0.02}, "lognormal": {Lognormal, 0.1}} {
		p := poisson(test.lifetime)
		s := p.Stream(7)
		counts, life := make([]float64, len(p.Shares)), 0.0
		for _, d := range s.Demands {
			counts[d.Kind]++
			life += d.Leaves - d.Arrives
		}
		for kind, share := range p.Shares {
			if got := counts[kind] / float64(p.Count); math.Abs(got-share) > 0.005 {
				t.Errorf("%s: share of kind %d: got %.3f, want %.3f", name, kind, got, share)
			}
		}
		if got := life / float64(p.Count); math.Abs(got-1) > test.tolerance {
			t.Errorf("%s: mean lifetime: got %.3f, want 1", name, got)
		}
		if got := float64(p.Count) / s.Demands[p.Count-1].Arrives; math.Abs(got-p.Rate) > 0.5 {
			t.Errorf("%s: rate: got %.2f, want %v", name, got, p.Rate)
		}
		if s.Counts(p.Count/4-1) || !s.Counts(p.Count/4) {
			t.Errorf("%s: the warm-up does not end after the first quarter", name)
		}
	}
}

func TestSeeds(t *testing.T) {
	t.Parallel()
	p := poisson(Exponential)
	p.Count = 100
	if diff := cmp.Diff(p.Stream(1), p.Stream(1)); diff != "" {
		t.Errorf("two streams of one seed (-first +second):\n%s", diff)
	}
	if cmp.Equal(p.Stream(1), p.Stream(2)) {
		t.Error("two seeds draw the same stream")
	}
}

// Every demand arrives once and leaves once, later, and time never goes back.
func TestSteps(t *testing.T) {
	t.Parallel()
	demands := []Demand{{Arrives: 1, Leaves: 3}, {Arrives: 2, Leaves: 2}, {Arrives: 2, Leaves: 9}, {Arrives: 3, Leaves: 4}}
	want := []Step{{0, false}, {1, false}, {1, true}, {2, false}, {0, true}, {3, false}, {3, true}, {2, true}}
	if diff := cmp.Diff(want, New(demands, 0).Steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}
