package fleet

import (
	"math"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// With whole GPUs only, two of them are the loss system of Erlang: at a load of 2 erlang on 2 servers 2/5
// of the demands are lost.
func TestPairErlang(t *testing.T) {
	t.Parallel()
	s := states(t, "a30-24")
	p := NewPair(s, []float64{0, 0, 1}, 1)
	got, err := p.Best(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 - 2./5; math.Abs(got-want) > 2*exact {
		t.Errorf("accepted: got %.5f, want %.5f", got, want)
	}
}

// The chain says of policies what long simulations say, and no policy is better than the best.
func TestPair(t *testing.T) {
	t.Parallel()
	s := states(t, "a30-24")
	shares := []float64{.5, .3, .2}
	const load = .9
	p := NewPair(s, shares, load)
	best, err := p.Best(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	size := 0.0
	for i, share := range shares {
		size += share * float64(s.Profiles[i].Size)
	}
	source := arrivals.Poisson{Rate: load * float64(2*s.Geometry.Slices()) / size, Shares: shares, Lifetime: arrivals.Exponential, Count: 400_000}
	for name, policy := range map[string]Policy{"ours": Ours(s, fit.Weights{}), "worst fit": WorstFit(s)} {
		got, err := p.Of(t.Context(), policy)
		if err != nil {
			t.Fatal(err)
		}
		if want := Replay(s, 2, policy, source.Stream(1)).Acceptance(); math.Abs(got-want) > .005 {
			t.Errorf("%s: the chain says %.4f, the simulation %.4f", name, got, want)
		}
		if got > best+2*exact {
			t.Errorf("%s accepts %.5f, the best policy %.5f", name, got, best)
		}
	}
}
