package fit

import (
	"math"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Weights say what the cluster's future demands are expected to be. The zero value weighs every profile
// by its size.
type Weights struct {
	// Profiles are the shares of the demand by the names of MIG profiles; a profile that is not named
	// has the average of the others. What is named counts at least half of the average, so that nothing
	// is starved.
	Profiles map[string]float64
}

// Unit is what one memory slice of a free placement is worth when its profile is in average demand and
// has no variants.
const Unit = 60

// of returns the weights of the profiles' placements. Variants of a profile have the same placements
// (1g.10gb and 1g.10gb+me): those that are not named share the weight of one, since together they need
// the slices only once.
func (w Weights) of(profiles []gpu.Profile) []int32 {
	weights := make([]int32, len(profiles))
	average := w.average(profiles)
	if average == 0 {
		w = Weights{}
	}
	for i, p := range profiles {
		share, named := w.named(p)
		if named {
			share = max(share/average, 0.5)
		} else {
			share = 1 / float64(w.variants(profiles, p))
		}
		weights[i] = int32(math.Round(min(share, maxShare) * float64(p.Size) * Unit))
	}
	return weights
}

// maxShare bounds a share as a multiple of the average, so that no sum of weights overflows.
const maxShare = 100

// average returns the mean share of the profiles that are named; 0 when none is.
func (w Weights) average(profiles []gpu.Profile) float64 {
	sum, count := 0.0, 0
	for _, p := range profiles {
		if share, named := w.named(p); named {
			sum, count = sum+share, count+1
		}
	}
	return sum / float64(max(1, count))
}

func (w Weights) named(p gpu.Profile) (float64, bool) {
	share, named := w.Profiles[p.Name]
	return share, named && share >= 0 && !math.IsInf(share, 0)
}

// variants returns how many of the profiles that are not named have the placements of p, p included.
func (w Weights) variants(profiles []gpu.Profile, p gpu.Profile) int {
	count := 0
	for _, other := range profiles {
		_, named := w.named(other)
		if !named && other.Size == p.Size && slices.Equal(other.Starts, p.Starts) {
			count++
		}
	}
	return count
}
