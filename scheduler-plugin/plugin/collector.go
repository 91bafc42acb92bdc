package plugin

import (
	"errors"
	"strconv"

	compbasemetrics "k8s.io/component-base/metrics"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// collector computes metrics from the indexes of a factory on each scrape.
type collector struct {
	compbasemetrics.BaseStableCollector
	factory *Factory

	nodes, refused, devices, gpus, slices, stranded, fragmented *compbasemetrics.Desc
}

func newCollector(f *Factory) *collector {
	desc := func(name, help string, labels ...string) *compbasemetrics.Desc {
		return compbasemetrics.NewDesc(subsystem+"_"+name, help, labels, nil, compbasemetrics.ALPHA, "")
	}
	return &collector{
		factory:    f,
		nodes:      desc("nodes", "Nodes with published devices: evaluated by the plugin (supported) or by the in-tree allocator (delegated).", "state"),
		refused:    desc("refused_pools", "Nodes that publish a pool that no agent publishes: under another node's name (not_own), or beyond a bound (too_large).", "reason"),
		devices:    desc("allocated_devices", "Allocated devices: written to the claim (written), or assumed and not yet written (in_flight).", "state"),
		gpus:       desc("gpus", "GPUs without an allocation (idle) and with one (used).", "state"),
		slices:     desc("memory_slices", "Memory slices of GPUs: free for a MIG device, or used. A GPU without MIG counts as one.", "state"),
		stranded:   desc("stranded_memory_slices", "Free memory slices on GPUs in use."),
		fragmented: desc("fragmented_nodes", "Nodes with at most this many free memory slices on GPUs in use; cumulative.", "at_most"),
	}
}

// DescribeWithStability sends the descriptions of all metrics.
func (c *collector) DescribeWithStability(ch chan<- *compbasemetrics.Desc) {
	for _, d := range []*compbasemetrics.Desc{c.nodes, c.refused, c.devices, c.gpus, c.slices, c.stranded, c.fragmented} {
		ch <- d
	}
}

// CollectWithStability sends the current values. It iterates over all nodes.
func (c *collector) CollectWithStability(ch chan<- compbasemetrics.Metric) {
	var sum index.Stats
	var waste strands
	var notOwn, tooLarge int
	for _, x := range c.factory.indexes() {
		sum = addStats(sum, x.Stats())
		nodes, _ := x.Changed(0)
		for _, n := range nodes {
			waste.add(n)
			if errors.Is(n.DelegateReason, wire.ErrNotOwn) {
				notOwn++
			}
			if errors.Is(n.DelegateReason, gpu.ErrTooLarge) {
				tooLarge++
			}
		}
	}
	gauge := func(d *compbasemetrics.Desc, value int, labels ...string) {
		ch <- compbasemetrics.NewLazyConstMetric(d, compbasemetrics.GaugeValue, float64(value), labels...)
	}
	gauge(c.nodes, sum.Nodes-sum.Delegated, "supported")
	gauge(c.nodes, sum.Delegated, "delegated")
	gauge(c.refused, notOwn, "not_own")
	gauge(c.refused, tooLarge, "too_large")
	gauge(c.devices, sum.Devices-sum.InFlight, "written")
	gauge(c.devices, sum.InFlight, "in_flight")
	gauge(c.gpus, sum.Load.Idle, "idle")
	gauge(c.gpus, sum.Load.GPUs-sum.Load.Idle, "used")
	gauge(c.slices, sum.Load.Free, "free")
	gauge(c.slices, sum.Load.Slices-sum.Load.Free, "used")
	gauge(c.stranded, waste.slices)
	for i, bound := range strandBounds {
		gauge(c.fragmented, waste.nodes[i], strconv.Itoa(bound))
	}
}

func addStats(a, b index.Stats) index.Stats {
	a.Nodes, a.Delegated = a.Nodes+b.Nodes, a.Delegated+b.Delegated
	a.Devices, a.InFlight = a.Devices+b.Devices, a.InFlight+b.InFlight
	a.Load.GPUs, a.Load.Idle = a.Load.GPUs+b.Load.GPUs, a.Load.Idle+b.Load.Idle
	a.Load.Slices, a.Load.Free = a.Load.Slices+b.Load.Slices, a.Load.Free+b.Load.Free
	return a
}

// strandBounds are the upper bounds of tessera_scheduler_fragmented_nodes, in memory slices.
var strandBounds = [...]int{0, 4, 8, 16, 32}

// strands counts free memory slices on GPUs in use.
type strands struct {
	slices int
	// nodes counts, for each of strandBounds, the nodes with at most that many.
	nodes [len(strandBounds)]int
}

func (s *strands) add(n *index.Node) {
	if n == nil || len(n.Fit.GPUs) == 0 {
		return
	}
	stranded := 0
	for i := range n.Fit.GPUs {
		if o := n.Fit.GPUs[i].Occupancy; o.Holders() > 0 {
			stranded += o.Free().Count()
		}
	}
	s.slices += stranded
	for i, bound := range strandBounds {
		if stranded <= bound {
			s.nodes[i]++
		}
	}
}
