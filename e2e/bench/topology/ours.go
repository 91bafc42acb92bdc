package main

import (
	"math/bits"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// choices are the scheduler plugin's: the function that it calls for every node.
type choices struct {
	node   fit.Node
	demand map[int]*fit.Requirements
}

func newChoices(h hardware) choices {
	c := choices{node: fit.Node{Wiring: topology.NewWiring(h.gpus)}, demand: map[int]*fit.Requirements{}}
	kind, all := fit.NewKind(nil, fit.Weights{}), fit.NewSet(len(h.gpus))
	for i, g := range h.gpus {
		c.node.GPUs = append(c.node.GPUs, fit.GPU{Name: g.Name(), Kind: kind, NUMA: g.NUMA})
		c.node.Devices = append(c.node.Devices, fit.Device{GPU: i, Use: gpu.Use{Shape: gpu.Whole}})
		all.Add(i)
	}
	for _, k := range teams() {
		c.demand[k] = &fit.Requirements{Requests: []fit.Request{{Name: "gpus", Alternatives: []fit.Alternative{{Candidates: all, Count: k}}}}}
	}
	return c
}

// evaluate returns the choice on a node with these GPUs free.
func (c choices) evaluate(free set, k int) (set, int64, bool) {
	node := c.node
	node.GPUs = make([]fit.GPU, len(c.node.GPUs))
	for i, g := range c.node.GPUs {
		g.Occupancy = gpu.GPU{}.Empty(0)
		if free>>i&1 == 0 {
			// An empty GPU can always be taken whole.
			g.Occupancy, _ = g.Occupancy.Take(gpu.Use{Shape: gpu.Whole})
		}
		node.GPUs[i] = g
	}
	choice, ok := fit.Choose(&node, c.demand[k], nil)
	if !ok {
		return 0, 0, false
	}
	var taken set
	for _, device := range choice.Picks[0].Devices {
		taken |= 1 << c.node.Devices[device].GPU
	}
	return taken, choice.Score, true
}

func (c choices) choose(free set, k int) (set, bool) {
	taken, _, ok := c.evaluate(free, k)
	return taken, ok
}

// The three ways to choose the node. Lower costs are better; of equal ones the first node is taken.

// anyNode takes the first node with room.
func anyNode(set, int) int64 { return 0 }

// fullest takes the node with the fewest free GPUs.
func fullest(free set, _ int) int64 { return int64(bits.OnesCount32(uint32(free))) }

// score takes the node with the best score of our choice there.
func (c choices) score(free set, k int) int64 {
	_, score, _ := c.evaluate(free, k)
	return -score
}
