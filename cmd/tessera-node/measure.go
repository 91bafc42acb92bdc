package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// measure registers what is counted when somebody asks.
func measure(registry prometheus.Registerer, a *agent, records prepare.Records) {
	gauge := func(name, help string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("tessera_records", "Claims that have a record on this node.", func() float64 {
		list, err := records.List()
		if err != nil {
			return -1
		}
		return float64(len(list))
	})
	gauge("tessera_unknown_instances", "MIG devices that Tessera did not make; their memory slices are withheld.", func() float64 {
		return float64(len(a.inventory.Unknown()))
	})
	gauge("tessera_gpus", "GPUs of the node that answer.", func() float64 {
		answering := 0
		for _, g := range a.inventory.Node().GPUs {
			if !g.Lost {
				answering++
			}
		}
		return float64(answering)
	})
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
