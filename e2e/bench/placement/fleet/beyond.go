package fleet

import (
	"math"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
)

// The policies here are what was tried to come closer to the bound. Each changes one thing about the policy
// that takes the least loss of value, a free placement being worth its profile's size.

// worth returns what the states are worth when instances stay with the probability: 1 is the value of what
// is free now, less looks ahead.
func worth(s *States, stay float64) []float64 {
	values := make([]float64, len(s.Held))
	for state := range s.Held {
		values[state] = s.expected(state, 0, stay)
	}
	return values
}

// expected returns the value that a state has on average when each instance from the placement on stays
// with the probability.
func (s *States) expected(state, from int, stay float64) float64 {
	for placement := from; placement < len(s.Placements); placement++ {
		if left := s.Released[state][placement]; left != None {
			after := stay * s.expected(state, placement+1, stay)
			if stay < 1 {
				after += (1 - stay) * s.expected(left, placement+1, stay)
			}
			return after
		}
	}
	value := 0.0
	for profile, open := range s.Open[state] {
		value += float64(s.Profiles[profile].Size * open)
	}
	return value
}

// Ahead takes the least loss of value now, of equal ones that of the value after some instances have left.
func Ahead(s *States, stay float64) Policy {
	now, later := worth(s, 1), worth(s, stay)
	return Least(s, Published(s), func(state, placement int) Key {
		next := s.Taken[state][placement]
		return Key{int(math.Round(1e6 * (now[state] - now[next]))), int(math.Round(1e6 * (later[state] - later[next])))}
	})
}

// OnlyAhead takes the least loss of the value after some instances have left.
func OnlyAhead(s *States, stay float64) Policy {
	later := worth(s, stay)
	return Least(s, Published(s), func(state, placement int) Key {
		return Key{int(math.Round(1e6 * (later[state] - later[s.Taken[state][placement]]))), -s.Held[state].Holders(), s.Held[state].Free().Count()}
	})
}

// Fuller is ours with the last two ties exchanged: the GPU with the fewest free slices before that with the
// most instances.
func Fuller(s *States) Policy {
	now := worth(s, 1)
	return Least(s, Published(s), func(state, placement int) Key {
		return Key{int(now[state] - now[s.Taken[state][placement]]), s.Held[state].Free().Count(), -s.Held[state].Holders()}
	})
}

// Scarce weighs the placements of a profile the more the fewer of them the whole fleet has left, of which
// one in Plenty is the half of what it is when there are none.
type Scarce struct {
	Plenty float64
}

// Choose implements Policy.
func (p Scarce) Choose(f *Fleet, d arrivals.Demand) (Choice, bool) {
	weights := make([]float64, len(f.Profiles))
	for profile, open := range f.Open {
		size := float64(f.Profiles[profile].Size)
		weights[profile] = size * math.Exp2(-size*float64(open)/p.Plenty)
	}
	return f.least(d.Kind, func(gpu, placement int) float64 {
		loss, state := 0.0, f.State[gpu]
		for profile, weight := range weights {
			loss += weight * float64(f.States.Open[state][profile]-f.States.Open[f.Taken[state][placement]][profile])
		}
		return loss - 1e-9*float64(f.Held[state].Holders())
	})
}

// least returns the choice that costs least, asking one GPU of every state.
func (f *Fleet) least(profile int, cost func(gpu, placement int) float64) (Choice, bool) {
	best, least := Choice{GPU: None}, math.Inf(1)
	for state, count := range f.Count {
		if count == 0 || f.States.Open[state][profile] == 0 {
			continue
		}
		gpu := f.First(state)
		for placement, of := range f.Profile {
			if of != profile || f.Taken[state][placement] == None {
				continue
			}
			if c := cost(gpu, placement); c < least {
				best, least = Choice{GPU: gpu, Placement: placement}, c
			}
		}
	}
	return best, best.GPU != None
}

// Keep refuses what would open one of the last empty GPUs, unless it needs all of it. A scheduler must not
// do that: the pod could run.
type Keep struct {
	Policy
	Empty int
}

// Choose implements Policy.
func (p Keep) Choose(f *Fleet, d arrivals.Demand) (Choice, bool) {
	choice, ok := p.Policy.Choose(f, d)
	if ok && f.State[choice.GPU] == 0 && f.Profiles[d.Kind].Size < f.Geometry.Slices() && f.Count[0] <= p.Empty {
		return Choice{}, false
	}
	return choice, ok
}

// Foreseen knows when every instance leaves: to the loss it adds how much longer the GPU stays in use, at
// so much per mean lifetime.
type Foreseen struct {
	now    []float64
	weight float64
}

// NewForeseen returns the policy.
func NewForeseen(s *States, weight float64) Foreseen { return Foreseen{worth(s, 1), weight} }

// Choose implements Policy.
func (p Foreseen) Choose(f *Fleet, d arrivals.Demand) (Choice, bool) {
	best, least := Choice{GPU: None}, math.Inf(1)
	for gpu, state := range f.State {
		if f.States.Open[state][d.Kind] == 0 {
			continue
		}
		last := d.Arrives
		for placement, until := range f.Until[gpu] {
			if f.Released[state][placement] != None {
				last = max(last, until)
			}
		}
		longer := p.weight*max(0, d.Leaves-last) - 1e-9*float64(f.Held[state].Holders())
		for placement, of := range f.Profile {
			if of != d.Kind || f.Taken[state][placement] == None {
				continue
			}
			if c := p.now[state] - p.now[f.Taken[state][placement]] + longer; c < least {
				best, least = Choice{GPU: gpu, Placement: placement}, c
			}
		}
	}
	return best, best.GPU != None
}
