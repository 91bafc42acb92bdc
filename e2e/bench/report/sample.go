package report

import (
	"slices"
	"time"
)

// Samples are durations of one operation.
type Samples []time.Duration

// Quantile returns the duration that the part q of the samples, 0 to 1, does not exceed; zero without
// samples.
func (s Samples) Quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	// The nearest rank: no value is interpolated between two samples.
	rank := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the median.
func (s Samples) Median() time.Duration { return s.Quantile(0.5) }

// Milliseconds converts a duration to the unit of the reports.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
