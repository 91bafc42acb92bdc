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
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
)

// newMonitor creates the monitor of the GPUs' health, which passes the stored faults to the inventory. Nothing is published
// before.
func (a *agent) newMonitor(ctx context.Context, c config, boot string, records *checkpoint.Store, registry prometheus.Registerer) (err error) {
	store, err := checkpoint.OpenHealth(disk.Host{}, filepath.Join(c.data(), healthFolder), logUnreadable(ctx))
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
		Hardware: a.hardware, Store: store, Records: records, Inventory: a.inventory, Report: a.publishFaults, Rules: c.rules(), Boot: boot,
		Leads: a.instance.Leads, Detected: func(took time.Duration) { detection.Observe(took.Seconds()) },
		Received: func(e gpu.Event) { xids.WithLabelValues(e.GPU, strconv.Itoa(e.XID)).Add(float64(e.Count)) },
	}))
	if err != nil {
		return err
	}
	registry.MustRegister(detection, xids, faults{monitor: a.monitor, leads: a.instance.Leads})
	return nil
}

// healthBuckets are the buckets of the durations from a fault to its taint.
func healthBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 14) }

// timePublishing returns the function that records how long the publication of taints took.
func timePublishing(registry prometheus.Registerer) func(time.Duration) {
	publishing := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tessera_health_publish_seconds", Help: "Time from the report or the end of a fault to the published device taints, in seconds.",
		Buckets: healthBuckets(),
	})
	registry.MustRegister(publishing)
	return func(took time.Duration) { publishing.Observe(took.Seconds()) }
}

// publishFaults passes the faults to the inventory. It requests a new read of the hardware if a GPU stopped or started
// responding.
func (a *agent) publishFaults(found []gpu.Fault) {
	a.inventory.Diagnose(found)
	for _, g := range a.inventory.Node().GPUs {
		silent := slices.ContainsFunc(g.Faults, func(f gpu.Fault) bool { return f.Signal == gpu.SignalLost && f.Gone.IsZero() })
		if silent != g.Lost {
			a.inventory.Refresh()
			return
		}
	}
}

// wasReset notifies the monitor of reset GPUs. The reset destroyed their MIG devices, so that claims whose release failed
// before can be released.
func (a *agent) wasReset(gpus []string, at time.Time) {
	a.monitor.WasReset(gpus, at)
	a.requestReconcile()
	a.inventory.Refresh()
}

// faults collects the metrics of current faults. Only the leading agent reports them.
type faults struct {
	monitor *health.Monitor
	leads   func() bool
}

var faultsInEffect = prometheus.NewDesc("tessera_gpu_faults", "Current faults of the GPU and its MIG devices with severity Warning or worse.",
	[]string{"gpu", "signal", "xid", "severity"}, nil)

// Describe implements prometheus.Collector.
func (f faults) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- faultsInEffect }

// Collect implements prometheus.Collector. Faults of several MIG devices of a GPU are summed.
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
