package plugin

import (
	"time"

	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// metrics are the metrics of the plugins of one scheduler. The scheduler's own endpoint serves them.
type metrics struct {
	duration    *compbasemetrics.HistogramVec
	misses      *compbasemetrics.CounterVec
	delegations *compbasemetrics.CounterVec
	refusals    *compbasemetrics.Counter
	tooComplex  *compbasemetrics.CounterVec
	loss        *compbasemetrics.Histogram
}

const (
	subsystem = "tessera_scheduler"

	// Values of the label extension_point.
	preFilter = "PreFilter"
	reserve   = "Reserve"

	// Values of the label reason of retries_total.
	missNarrowed = "narrowed"
	missChanged  = "changed"

	// Values of the label cause of too_complex_total.
	exceededNow    = "exceeded"
	exceededBefore = "backoff"
)

// newMetrics registers the metrics with the scheduler's registry. If a process creates a second factory, as tests do,
// the metrics of the first one stay registered and those of the second are not served.
func newMetrics() *metrics {
	m := &metrics{
		duration: compbasemetrics.NewHistogramVec(&compbasemetrics.HistogramOpts{
			Subsystem: subsystem, Name: "extension_point_duration_seconds",
			Help:           "Duration of the plugin's extension points for pods with claims, in seconds.",
			Buckets:        compbasemetrics.ExponentialBuckets(0.00002, 2, 16),
			StabilityLevel: compbasemetrics.ALPHA,
		}, []string{"extension_point"}),
		misses: compbasemetrics.NewCounterVec(&compbasemetrics.CounterOpts{
			Subsystem: subsystem, Name: "retries_total",
			Help:           "Scheduling attempts that must be repeated: no candidate node fits (narrowed), or the chosen node has changed (changed).",
			StabilityLevel: compbasemetrics.ALPHA,
		}, []string{"reason"}),
		delegations: compbasemetrics.NewCounterVec(&compbasemetrics.CounterOpts{
			Subsystem: subsystem, Name: "delegations_total",
			Help:           "Decisions delegated to the in-tree allocator, by reason: node concerns one node, all other reasons concern all nodes of the pod.",
			StabilityLevel: compbasemetrics.ALPHA,
		}, []string{"reason"}),
		refusals: compbasemetrics.NewCounter(&compbasemetrics.CounterOpts{
			Subsystem: subsystem, Name: "allocator_rejections_total",
			Help:           "Chosen devices that the in-tree allocator rejected. Expected to stay 0.",
			StabilityLevel: compbasemetrics.ALPHA,
		}),
		tooComplex: compbasemetrics.NewCounterVec(&compbasemetrics.CounterOpts{
			Subsystem: subsystem, Name: "too_complex_total",
			Help:           "Scheduling attempts that ended with RequestTooComplex: the search exceeded its limit and no node fit (exceeded), or the pod waits because of such attempts (backoff).",
			StabilityLevel: compbasemetrics.ALPHA,
		}, []string{"cause"}),
		loss: compbasemetrics.NewHistogram(&compbasemetrics.HistogramOpts{
			Subsystem: subsystem, Name: "placement_loss",
			Help:           "Value that an allocation removes from the GPUs' remaining capacity, as a ratio of the value of one idle GPU.",
			Buckets:        []float64{0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1, 2, 4, 8},
			StabilityLevel: compbasemetrics.ALPHA,
		}),
	}
	for _, metric := range []compbasemetrics.Registerable{m.duration, m.misses, m.delegations, m.refusals, m.tooComplex, m.loss} {
		_ = legacyregistry.Register(metric)
	}
	m.initialize()
	return m
}

// initialize creates the series of the label values that are known, so that a rate includes the first event.
func (m *metrics) initialize() {
	for _, miss := range []string{missNarrowed, missChanged} {
		m.misses.WithLabelValues(miss)
	}
	for _, cause := range []string{exceededNow, exceededBefore} {
		m.tooComplex.WithLabelValues(cause)
	}
	for _, why := range []reason{undecided, unclear, partly, sharing, refused} {
		m.delegations.WithLabelValues(string(why))
	}
}

// time starts a measurement of an extension point. The returned function ends and records it.
func (m *metrics) time(point string) func() {
	start := time.Now()
	return func() { m.duration.WithLabelValues(point).Observe(time.Since(start).Seconds()) }
}

func (m *metrics) delegated(why reason) { m.delegations.WithLabelValues(string(why)).Inc() }
