package fleet

import (
	"math"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// BestFit takes the GPU with the fewest free slices, there the lowest start.
func BestFit(s *States) Policy {
	return Least(s, LowStart(s), func(state, _ int) Key { return Key{s.Held[state].Free().Count()} })
}

// WorstFit takes the GPU with the most free slices, there the lowest start (instaslice).
func WorstFit(s *States) Policy {
	return Least(s, LowStart(s), func(state, _ int) Key { return Key{-s.Held[state].Free().Count()} })
}

// LeastLoss takes the placement that costs the fewest free placements, weighted by profile: MCC with
// weights of 1, FGD with popularity times size.
func LeastLoss(s *States, weights []float64) Policy {
	value := func(state int) float64 {
		sum := 0.0
		for profile, open := range s.Open[state] {
			sum += weights[profile] * float64(open)
		}
		return sum
	}
	return Least(s, LowStart(s), func(state, placement int) Key {
		// Sums that should be equal differ in the last digits.
		return Key{int(math.Round(1e6 * (value(state) - value(s.Taken[state][placement]))))}
	})
}

// MFI takes the placement that adds the least fragmentation: the windows, by size, that are blocked on
// a GPU which would have enough free slices for their profile (minimum fragmentation increment,
// rebuilt from the paper's description).
func MFI(s *States) Policy {
	fragmentation := func(state int) int {
		sum, free := 0, s.Held[state].Free().Count()
		for profile, p := range s.Profiles {
			if free >= p.Size {
				sum += p.Size * (len(p.Starts) - s.Open[state][profile])
			}
		}
		return sum
	}
	return Least(s, LowStart(s), func(state, placement int) Key {
		return Key{fragmentation(s.Taken[state][placement]) - fragmentation(state)}
	})
}

// Ours is the scheduler plugin's choice, by the functions that it calls.
func Ours(s *States, w fit.Weights) Policy {
	kind := fit.NewKind(s.Geometry, w)
	return NewRanked(s, func(state, profile int) (fit.PlacementCost, int, bool) {
		held := s.Held[state]
		option, ok := kind.Best(kind.State(held), s.Profiles[profile].ID)
		bid := fit.PlacementCost{Loss: option.Loss, Holders: held.Holders(), Free: held.Free().Count()}
		return bid, slices.Index(s.Placements, option.Placement), ok
	})
}
