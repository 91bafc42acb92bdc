package main

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/health"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
)

// watch builds the monitor of the GPUs' health, which has the inventory show what was remembered: nothing is published before.
func (a *agent) watch(ctx context.Context, c config, boot string, records *checkpoint.Store, registry prometheus.Registerer) (err error) {
	store, err := checkpoint.OpenHealth(filepath.Join(c.data(), healthFolder), reporter(ctx))
	if err != nil {
		return err
	}
	detection := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tessera_health_detection_seconds",
		Help:    "Time from an XID, or from the start of a GPU's health check, to the report of a new or worsened fault, in seconds.",
		Buckets: healthBuckets(),
	})
	xids := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tessera_xid_total", Help: "XIDs reported by the GPU's driver since this agent started, including harmless ones.",
	}, []string{"gpu", "xid"})
	a.monitor, err = health.New(ctx, seamHealth(health.Config{
		Hardware: a.hardware, Store: store, Records: records, Inventory: a.inventory, Report: a.diagnose, Rules: c.rules(), Boot: boot,
		Leads: a.instance.Leads, Detected: func(took time.Duration) { detection.Observe(took.Seconds()) },
		Received: func(e gpu.Event) { xids.WithLabelValues(e.GPU, strconv.Itoa(e.XID)).Add(float64(e.Count)) },
	}))
	if err != nil {
		return err
	}
	registry.MustRegister(detection, xids, faults{monitor: a.monitor, leads: a.instance.Leads})
	return nil
}

// healthBuckets are those of the times that the way from a fault to its taint takes.
func healthBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 14) }

// timePublishing returns what takes note of how long the API server took to have the taints of faults.
func timePublishing(registry prometheus.Registerer) func(time.Duration) {
	publishing := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tessera_health_publish_seconds", Help: "Time from the report or the end of a fault to the published device taints, in seconds.",
		Buckets: healthBuckets(),
	})
	registry.MustRegister(publishing)
	return func(took time.Duration) { publishing.Observe(took.Seconds()) }
}

// diagnose has the inventory show the faults. It reads the hardware again when a GPU stopped or started responding.
func (a *agent) diagnose(found []gpu.Fault) {
	a.inventory.Diagnose(found)
	for _, g := range a.inventory.Node().GPUs {
		silent := slices.ContainsFunc(g.Faults, func(f gpu.Fault) bool { return f.Signal == gpu.SignalLost && f.Gone.IsZero() })
		if silent != g.Lost {
			a.inventory.Refresh()
			return
		}
	}
}

// wasReset tells the monitor of GPUs that were reset. What lay there is gone: claims that could not be taken back are now.
func (a *agent) wasReset(gpus []string, at time.Time) {
	a.monitor.WasReset(gpus, at)
	a.disturb()
	a.inventory.Refresh()
}

// faults are the metrics of the faults of the GPUs, told by the agent that speaks for the node.
type faults struct {
	monitor *health.Monitor
	leads   func() bool
}

var faultsInEffect = prometheus.NewDesc("tessera_gpu_faults", "Current faults of the GPU and its MIG devices with severity Warning or worse.",
	[]string{"gpu", "signal", "xid", "severity"}, nil)

// Describe implements prometheus.Collector.
func (f faults) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- faultsInEffect }

// Collect implements prometheus.Collector. Faults of MIG devices are added up.
func (f faults) Collect(metrics chan<- prometheus.Metric) {
	if !f.leads() {
		return
	}
	type labels struct{ gpu, signal, xid, severity string }
	found := map[labels]float64{}
	for _, fault := range f.monitor.Faults() {
		if !fault.InEffect() || fault.Severity < gpu.Warning {
			continue
		}
		l := labels{gpu: fault.GPU, signal: string(fault.Signal), severity: fault.Severity.String()}
		if fault.Signal == gpu.SignalXID {
			l.xid = strconv.Itoa(fault.XID)
		}
		found[l]++
	}
	for l, count := range found {
		metrics <- prometheus.MustNewConstMetric(faultsInEffect, prometheus.GaugeValue, count, l.gpu, l.signal, l.xid, l.severity)
	}
}
