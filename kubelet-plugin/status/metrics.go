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
			Name: "tessera_status_failures_total", Help: "Tries to write the status of a claim that failed and are repeated; conflicts are not counted.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tessera_status_dropped_total", Help: "Reports about claims that were dropped because too many waited.",
		}),
	}
	registry.MustRegister(m.failures, m.dropped, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tessera_status_queue_depth", Help: "Claims whose status waits to be written.",
	}, depth))
	return m
}
