package status

import "github.com/prometheus/client_golang/prometheus"

// metrics count what is written.
type metrics struct {
	failures, dropped prometheus.Counter
}

// newMetrics registers the metrics; depth is the number of claims that wait.
func newMetrics(registry prometheus.Registerer, depth func() float64) metrics {
	m := metrics{
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tessera_claim_status_failures_total", Help: "Failed writes of a claim's status, which are retried. Conflicts are not counted.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tessera_claim_status_dropped_total", Help: "Claim status updates dropped because the queue was full.",
		}),
	}
	registry.MustRegister(m.failures, m.dropped, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tessera_claim_status_queue_depth", Help: "Claims in the queue for a status update.",
	}, depth))
	return m
}
