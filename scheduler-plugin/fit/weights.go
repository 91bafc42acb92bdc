package fit

import (
	"math"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Weights describe the expected demand. The zero value means that nothing is known.
type Weights struct {
	// Profiles are the shares of the demands by the names of MIG profiles. Slices are not left over in a
	// way that only other profiles could use: those that are named with less than half of the average,
	// and those that are not named. Where a GPU has none of the names nothing is known about it.
	Profiles map[string]float64
}

// Unit is what one memory slice of a free placement is worth when its profile has no variants, Packed
// what one is worth that the expected demands can use at the same time. Simulated, what is served hardly
// depends on the ratio between four and eight; it does not get better with the shares as weights.
const (
	Unit   = 60
	Packed = 5 * Unit
)

// placementWeights returns the weights of the profiles' placements. Variants of a profile have the same placements
// (1g.10gb and 1g.10gb+me): they share the weight of one, since together they need the slices only once.
func placementWeights(profiles []gpu.Profile) []int32 {
	weights := make([]int32, len(profiles))
	for i, p := range profiles {
		variants := 0
		for _, other := range profiles {
			if other.Size == p.Size && slices.Equal(other.Starts, p.Starts) {
				variants++
			}
		}
		weights[i] = int32(math.Round(float64(p.Size) * Unit / float64(variants)))
	}
	return weights
}

// expects reports whether requests of the profile are expected.
func (w Weights) expects(profiles []gpu.Profile, p gpu.Profile) bool {
	sum, named := 0.0, 0
	for _, other := range profiles {
		if share, ok := w.shareOf(other); ok {
			sum, named = sum+share, named+1
		}
	}
	share, ok := w.shareOf(p)
	return ok && share > 0 && 2*share*float64(named) >= sum
}

// shareOf returns the share of a profile that is named with one that makes sense.
func (w Weights) shareOf(p gpu.Profile) (float64, bool) {
	share, named := w.Profiles[p.Name]
	return share, named && share >= 0 && !math.IsInf(share, 0)
}
