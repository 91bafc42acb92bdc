package report

import (
	"slices"
	"time"
)

// Samples are durations of one and the same thing.
type Samples []time.Duration

// Quantile returns the duration that the part q of the samples, 0 to 1, does not exceed; zero without
// samples.
func (s Samples) Quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	// The nearest rank: no value is made up between two that were seen.
	rank := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle one.
func (s Samples) Median() time.Duration { return s.Quantile(0.5) }

// Milliseconds is how the reports show durations.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
