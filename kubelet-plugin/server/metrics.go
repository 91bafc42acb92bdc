package server

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// operation is a call of kubelet; its text is part of the metrics' names.
type operation string

const (
	preparing   operation = "prepare"
	unpreparing operation = "unprepare"
)

// Metrics counts and times the calls of kubelet.
type Metrics struct {
	durations map[operation]*prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
	errors    *prometheus.CounterVec
	blocked   *prometheus.GaugeVec
}

// NewMetrics registers the metrics of the calls.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		durations: map[operation]*prometheus.HistogramVec{
			preparing:   newDurationHistogram(preparing, "shape", "result"),
			unpreparing: newDurationHistogram(unpreparing, "result"),
		},
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tessera_claims_in_flight", Help: "Claims being prepared or unprepared.",
		}, []string{"operation"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tessera_claim_errors_total", Help: "Failed calls to prepare or unprepare a claim, by reason.",
		}, []string{"operation", "reason"}),
		blocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tessera_claims_blocked",
			Help: "Claims that the API server does not have and that are not released, by what uses them: kubelet, process or unknown.",
		}, []string{"usage"}),
	}
	registry.MustRegister(m.durations[preparing], m.durations[unpreparing], m.inFlight, m.errors, m.blocked)
	m.Blocked(nil)
	return m
}

// Blocked sets the number of claims that are in use and therefore not released, by usage; missing usages have none.
func (m *Metrics) Blocked(counts map[prepare.Usage]int) {
	for _, usage := range prepare.Usages() {
		m.blocked.WithLabelValues(string(usage)).Set(float64(counts[usage]))
	}
}

func newDurationHistogram(op operation, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tessera_" + string(op) + "_duration_seconds",
		Help:    "Time to " + string(op) + " one claim, in seconds.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
	}, labels)
}

// startCall counts a call in; the returned function counts it out. The shape is empty where it is not
// known.
func (m *Metrics) startCall(op operation) func(shape string, err error) {
	start := time.Now()
	m.inFlight.WithLabelValues(string(op)).Inc()
	return func(shape string, err error) {
		m.inFlight.WithLabelValues(string(op)).Dec()
		result := "ok"
		if err != nil {
			result = "error"
			m.errors.WithLabelValues(string(op), errorReason(err)).Inc()
		}
		labels := prometheus.Labels{"result": result}
		if op == preparing {
			labels["shape"] = shape
		}
		m.durations[op].With(labels).Observe(time.Since(start).Seconds())
	}
}

// reasons maps causes to values of the label reason; the first match applies.
var reasons = []struct {
	is   error
	name string
}{
	{errPanic, "panic"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "cancelled"},
	{prepare.ErrOutOfService, "out-of-service"},
	{gpu.ErrBusy, "busy"},
	{gpu.ErrOccupied, "occupied"},
	{gpu.ErrUnsupported, "unsupported"},
	{gpu.ErrLost, "lost"},
}

func errorReason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.is) {
			return r.name
		}
	}
	return "other"
}
