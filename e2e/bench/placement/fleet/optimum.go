package fleet

import (
	"context"
	"math"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
)

// Pair is a fleet of two GPUs under independent arrivals and exponential lifetimes, small enough to compute
// without simulation what a policy accepts in the long run, and what the best of all policies would: it is
// a Markov chain over unordered pairs of states.
type Pair struct {
	*States
	// arrivals is the rate of arrivals by profile.
	arrivals []float64
	// steps is the rate at which the chain is looked at: that of all arrivals and of as many ends as there
	// can be.
	steps float64
}

// NewPair returns two GPUs on which arrivals of these shares ask for load times the slices that there are.
func NewPair(s *States, shares []float64, load float64) *Pair {
	p, size, most := &Pair{States: s}, 0.0, 0
	for i, share := range shares {
		size += share * float64(s.Profiles[i].Size)
	}
	rate := load * float64(2*s.Geometry.Slices()) / size
	for _, held := range s.Held {
		most = max(most, held.Holders())
	}
	p.steps = rate + float64(2*most)
	for _, share := range shares {
		p.arrivals = append(p.arrivals, rate*share)
	}
	return p
}

// index returns the number of the pair.
func index(a, b int) int {
	a, b = max(a, b), min(a, b)
	return a*(a+1)/2 + b
}

// Of returns the share of the slices that the policy serves.
func (p *Pair) Of(ctx context.Context, policy Policy) (float64, error) {
	next := make([][]int, len(p.Profiles))
	for profile := range next {
		next[profile] = p.choices(policy, profile)
	}
	return p.solve(ctx, func(v []float64, profile, a, b int) float64 {
		if to := next[profile][index(a, b)]; to != None {
			return v[to]
		}
		return math.Inf(-1)
	})
}

// choices returns, by pair, the pair that the policy makes of it with the profile, None where it refuses.
func (p *Pair) choices(policy Policy, profile int) []int {
	var next []int
	f := New(p.States, 2)
	for a := range p.Held {
		for b := range a + 1 {
			f.move(0, a)
			f.move(1, b)
			to := None
			if c, ok := policy.Choose(f, arrivals.Demand{Kind: profile}); ok {
				to = index(p.Taken[f.State[c.GPU]][c.Placement], f.State[1-c.GPU])
			}
			next = append(next, to)
		}
	}
	return next
}

// Best returns the share of the slices that the best policy serves which refuses nothing that fits.
func (p *Pair) Best(ctx context.Context) (float64, error) {
	return p.solve(ctx, func(v []float64, profile, a, b int) float64 {
		best := math.Inf(-1)
		for placement, of := range p.Profile {
			if of != profile {
				continue
			}
			if to := p.Taken[a][placement]; to != None {
				best = max(best, v[index(to, b)])
			}
			if to := p.Taken[b][placement]; to != None {
				best = max(best, v[index(a, to)])
			}
		}
		return best
	})
}

// exact is how far the share may be off.
const exact = 1e-5

// solve iterates the values of the pairs until all of them grow alike; what they grow by in a step is what
// is served. Served returns the value of the pair that a served demand leads to, or minus infinity.
func (p *Pair) solve(ctx context.Context, served func(v []float64, profile, a, b int) float64) (float64, error) {
	offered := 0.0
	for profile, rate := range p.arrivals {
		offered += rate * float64(p.Profiles[profile].Size)
	}
	v, next := make([]float64, index(len(p.Held), 0)), make([]float64, index(len(p.Held), 0))
	for {
		least, most := math.Inf(1), math.Inf(-1)
		for a := range p.Held {
			for b := range a + 1 {
				i := index(a, b)
				next[i] = p.step(v, a, b, served)
				least, most = min(least, next[i]-v[i]), max(most, next[i]-v[i])
			}
		}
		v, next = next, v
		if most-least < exact*offered/p.steps {
			return (least + most) / 2 * p.steps / offered, nil
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// step returns the value of a pair one step earlier.
func (p *Pair) step(v []float64, a, b int, served func(v []float64, profile, a, b int) float64) float64 {
	value, idle := 0.0, p.steps
	here := v[index(a, b)]
	for profile, rate := range p.arrivals {
		if rate == 0 {
			continue
		}
		if to := served(v, profile, a, b); !math.IsInf(to, -1) {
			value += rate * (float64(p.Profiles[profile].Size) + to)
			idle -= rate
		}
	}
	for placement := range p.Placements {
		if to := p.Released[a][placement]; to != None {
			value += v[index(to, b)]
			idle--
		}
		if to := p.Released[b][placement]; to != None {
			value += v[index(a, to)]
			idle--
		}
	}
	return (value + idle*here) / p.steps
}
