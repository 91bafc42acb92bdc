package subject

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
)

// Histogram is one of Prometheus: buckets by their upper bounds, not cumulative.
type Histogram struct {
	Count   uint64
	Sum     float64
	Buckets []Bucket
}

// Bucket counts what is at most Bound and above the bound before it.
type Bucket struct {
	Bound float64
	Count uint64
}

// Mean is the average of what was observed, in seconds.
func (h Histogram) Mean() time.Duration {
	if h.Count == 0 {
		return 0
	}
	return seconds(h.Sum / float64(h.Count))
}

// Quantile returns the value that the part q of the observations does not exceed, interpolated within its
// bucket as Prometheus does.
func (h Histogram) Quantile(q float64) time.Duration {
	rank, below, lower := q*float64(h.Count), 0.0, 0.0
	for _, b := range h.Buckets {
		if below+float64(b.Count) >= rank && b.Count > 0 {
			return seconds(lower + (b.Bound-lower)*(rank-below)/float64(b.Count))
		}
		below, lower = below+float64(b.Count), b.Bound
	}
	return seconds(lower)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// since returns the observations after the earlier state of the same histogram.
func (h Histogram) since(earlier Histogram) Histogram {
	h.Count -= earlier.Count
	h.Sum -= earlier.Sum
	h.Buckets = slices.Clone(h.Buckets)
	for i, b := range earlier.Buckets {
		h.Buckets[i].Count -= b.Count
	}
	return h
}

// gathered are kube-scheduler's histograms of durations, by name and labels without the profile.
func gathered() (map[string]Histogram, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's metrics: %w", err)
	}
	all := map[string]Histogram{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "scheduler_")
		if !ours {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetHistogram() == nil {
				continue
			}
			key := strings.TrimSuffix(name, "_duration_seconds")
			for _, l := range m.GetLabel() {
				if l.GetName() != "profile" {
					key += " " + l.GetValue()
				}
			}
			h := Histogram{Count: m.GetHistogram().GetSampleCount(), Sum: m.GetHistogram().GetSampleSum()}
			below := uint64(0)
			for _, b := range m.GetHistogram().GetBucket() {
				h.Buckets = append(h.Buckets, Bucket{Bound: b.GetUpperBound(), Count: b.GetCumulativeCount() - below})
				below = b.GetCumulativeCount()
			}
			all[key] = h
		}
	}
	return all, nil
}

// indexed returns the number of nodes whose devices the index of our plugin has read.
func indexed() (int, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return 0, fmt.Errorf("read the scheduler's metrics: %w", err)
	}
	for _, family := range families {
		if family.GetName() != "tessera_scheduler_nodes" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "supported" {
					return int(m.GetGauge().GetValue()), nil
				}
			}
		}
	}
	return 0, nil
}

// observed are the histograms with more observations than earlier.
func observed(now, earlier map[string]Histogram) map[string]Histogram {
	more := map[string]Histogram{}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if h := now[name].since(earlier[name]); h.Count > 0 {
			more[name] = h
		}
	}
	return more
}
