package fleet

import "github.com/tessera-gpu/tessera/e2e/bench/arrivals"

// Mover is implemented by policies that may move an instance when a demand does not fit.
type Mover interface {
	// Move returns the move that makes room for the demand, and false when no single move does.
	Move(f *Fleet, d arrivals.Demand) (from, to Choice, ok bool)
}

// Moving is a policy that moves one instance when that lets it serve a demand which it would refuse: the
// move with the highest value of the fleet afterwards.
type Moving struct {
	Policy
}

// Move implements Mover.
func (p Moving) Move(f *Fleet, d arrivals.Demand) (from, to Choice, ok bool) {
	most := -1
	for state, count := range f.Count {
		if count == 0 {
			continue
		}
		gpu := f.First(state)
		for blocker, left := range f.Released[state] {
			if left == None || f.States.Open[left][d.Kind] == 0 {
				continue
			}
			at := Choice{GPU: gpu, Placement: blocker}
			if other, value, possible := p.try(f, d, at); possible && value > most {
				from, to, ok, most = at, other, true, value
			}
		}
	}
	return from, to, ok
}

// try returns where the instance would be placed if the demand took its place on the GPU, and the value of
// the fleet after that. It leaves the fleet unchanged.
func (p Moving) try(f *Fleet, d arrivals.Demand, at Choice) (to Choice, value int, ok bool) {
	f.Release(at)
	defer f.Take(at)
	room := f.room(at.GPU, d.Kind)
	f.Take(room)
	defer f.Release(room)
	to, ok = p.Choose(f, arrivals.Demand{Kind: f.Profile[at.Placement]})
	if !ok {
		return to, 0, false
	}
	f.Take(to)
	defer f.Release(to)
	return to, f.value(), true
}

// room returns the placement of the profile on a GPU with the highest value of the fleet afterwards.
func (f *Fleet) room(gpu, profile int) Choice {
	best, most := Choice{GPU: gpu}, -1
	for placement, of := range f.Profile {
		if of != profile || f.Taken[f.State[gpu]][placement] == None {
			continue
		}
		c := Choice{GPU: gpu, Placement: placement}
		f.Take(c)
		if value := f.value(); value > most {
			best, most = c, value
		}
		f.Release(c)
	}
	return best
}

// value returns the value of the fleet's free placements: for each the size of its profile.
func (f *Fleet) value() int {
	value := 0
	for profile, open := range f.Open {
		value += f.Profiles[profile].Size * open
	}
	return value
}
