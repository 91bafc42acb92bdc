package plugin

import (
	"time"

	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// metrics are those of a scheduler's plugins. They are served with the scheduler's own.
type metrics struct {
	duration    *compbasemetrics.HistogramVec
	misses      *compbasemetrics.CounterVec
	delegations *compbasemetrics.CounterVec
	refusals    *compbasemetrics.Counter
	loss        *compbasemetrics.Histogram
}

const (
	subsystem = "tessera_scheduler"

	// Extension points whose duration is measured.
	preFilter = "PreFilter"
	reserve   = "Reserve"

	// Why an attempt was made in vain.
	missNarrowed = "narrowed"
	missChanged  = "changed"
)

// newMetrics registers the metrics with the scheduler's registry. A second factory in one process, as tests
// have, is not measured: what is registered stays that of the first.
func newMetrics() *metrics {
	m := &metrics{
		duration: compbasemetrics.NewHistogramVec(&compbasemetrics.HistogramOpts{
			Subsystem: subsystem, Name: "extension_point_duration_seconds",
			Help:           "How long the plugin took at an extension point, for pods with claims.",
			Buckets:        compbasemetrics.ExponentialBuckets(0.00002, 2, 16),
			StabilityLevel: compbasemetrics.ALPHA,
		}, []string{"extension_point"}),
		misses: compbasemetrics.NewCounterVec(&compbasemetrics.CounterOpts{
			Subsystem: subsystem, Name: "misses_total",
			Help:           "Attempts that must be made again: none of the nodes looked at would do (narrowed), or the chosen one changed (changed).",
			StabilityLevel: compbasemetrics.ALPHA,
		}, []string{"reason"}),
		delegations: compbasemetrics.NewCounterVec(&compbasemetrics.CounterOpts{
			Subsystem: subsystem, Name: "delegations_total",
			Help:           "Decisions left to the in-tree allocator: on one node (node), else on all of them.",
			StabilityLevel: compbasemetrics.ALPHA,
		}, []string{"reason"}),
		refusals: compbasemetrics.NewCounter(&compbasemetrics.CounterOpts{
			Subsystem: subsystem, Name: "refusals_total",
			Help:           "Choices that the in-tree allocator refused. It should stay zero.",
			StabilityLevel: compbasemetrics.ALPHA,
		}),
		loss: compbasemetrics.NewHistogram(&compbasemetrics.HistogramOpts{
			Subsystem: subsystem, Name: "placement_loss",
			Help:           "What an allocation takes from the GPUs, as a share of what one empty GPU could be used for.",
			Buckets:        []float64{0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1, 2, 4, 8},
			StabilityLevel: compbasemetrics.ALPHA,
		}),
	}
	for _, metric := range []compbasemetrics.Registerable{m.duration, m.misses, m.delegations, m.refusals, m.loss} {
		_ = legacyregistry.Register(metric)
	}
	return m
}

// time measures an extension point from now to the call of what it returns.
func (m *metrics) time(point string) func() {
	start := time.Now()
	return func() { m.duration.WithLabelValues(point).Observe(time.Since(start).Seconds()) }
}

func (m *metrics) delegated(why reason) { m.delegations.WithLabelValues(string(why)).Inc() }
