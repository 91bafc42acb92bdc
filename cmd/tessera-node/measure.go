package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// readyLimit bounds how long a scrape waits for the readiness check.
const readyLimit = 2 * time.Second

// registerMetrics registers the metrics that are computed at each scrape, until ctx ends.
func registerMetrics(ctx context.Context, registry prometheus.Registerer, a *agent, records prepare.Records, options wire.Options) {
	gauge := func(name, help string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("tessera_claim_records", "Claims with a record on this node.", func() float64 {
		list, err := records.List()
		if err != nil {
			return -1
		}
		return float64(len(list))
	})
	gauge("tessera_foreign_mig_devices", "MIG devices that Tessera did not create. Their memory slices are withheld.", func() float64 {
		return float64(len(a.inventory.ForeignInstances()))
	})
	gauge("tessera_gpus", "GPUs of the node that respond.", func() float64 {
		answering := 0
		for _, g := range a.inventory.Node().GPUs {
			if !g.Lost {
				answering++
			}
		}
		return float64(answering)
	})
	gauge("tessera_resourceslices_published", "ResourceSlices of the node published by this agent; 0 while another agent of the node leads.", func() float64 {
		if !a.instance.Leads() || a.publisher.Accepted(ctx) != nil {
			return 0
		}
		pool, err := wire.Encode(a.inventory.Node(), options)
		if err != nil {
			return 0
		}
		return float64(len(pool.Slices))
	})
	gauge("tessera_agent_ready", "1 if the agent is registered with kubelet and the node's ResourceSlices are published, 0 otherwise.", func() float64 {
		limited, cancel := context.WithTimeout(ctx, readyLimit)
		defer cancel()
		if a.ready(limited) != nil {
			return 0
		}
		return 1
	})
	build := buildInfo()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tessera_build_info", Help: "Version of the agent, always 1.",
		ConstLabels: prometheus.Labels{"version": build.version, "revision": build.revision, "goversion": build.toolchain},
	}, func() float64 { return 1 }))
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
