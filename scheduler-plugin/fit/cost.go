package fit

import (
	"cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// gpuCost is what a GPU loses. Costs of different GPUs can be added. The residual is added as well, although it is
// exact only if a single GPU is opened.
type gpuCost struct {
	loss, residual        int64
	opened, holders, free int
	// unshared is the memory that is left on a shared GPU, in MiB.
	unshared int
}

func (c gpuCost) plus(other gpuCost) gpuCost {
	return gpuCost{
		loss: c.loss + other.loss, residual: c.residual + other.residual, opened: c.opened + other.opened,
		holders: c.holders + other.holders, free: c.free + other.free, unshared: c.unshared + other.unshared,
	}
}

// compare returns a negative number if c is lower, in the order of Choice.Score.
func (c gpuCost) compare(other gpuCost) int {
	return cmp.Or(cmp.Compare(c.loss, other.loss), cmp.Compare(c.residual, other.residual), cmp.Compare(c.opened, other.opened),
		cmp.Compare(other.holders, c.holders), cmp.Compare(c.free, other.free), cmp.Compare(c.unshared, other.unshared))
}

// costOf returns what the GPU loses if after is its new occupancy.
func (s *nodeView) costOf(position int, after gpu.Occupancy) gpuCost {
	g := &s.gpus[position]
	before, kind := g.gpu.Occupancy, g.gpu.Kind
	if after == before {
		return gpuCost{}
	}
	total := gpuCost{loss: int64(g.row.value - kind.Value(kind.State(after)))}
	if after.Shape() == gpu.MIG {
		total.holders, total.free = before.Holders(), before.Free().Count()
	}
	if g.idle {
		total.opened, total.residual = 1, g.residual
	}
	if after.Shape().Shared() && before.Total().MemoryBytes > 0 {
		total.unshared = int(after.Left().MemoryBytes >> 20)
	}
	return total
}

// outcomeOfPicks returns the outcome of the picks, which must be possible together.
func (s *nodeView) outcomeOfPicks(req *Requirements, picks []Pick) outcome {
	o := outcome{quality: topology.PerfectQuality}
	after := map[int]gpu.Occupancy{}
	for r, pick := range picks {
		a := &req.Requests[r].Alternatives[pick.Alternative]
		o.rank += alternativeRank(req.Requests[r], pick.Alternative)
		var gpus []int
		for _, device := range pick.Devices {
			g := s.node.Devices[device].GPU
			before, touched := after[g]
			if !touched {
				before = s.node.GPUs[g].Occupancy
			}
			// An error would leave the GPU as it is: what cannot be taken costs nothing.
			after[g], _ = before.Take(a.useOf(s.node, device))
			gpus = append(gpus, g)
		}
		if a.isTeam(s.node.Devices) {
			o.quality = min(o.quality, s.wiring.QualityScore(gpus))
		}
	}
	s.addCosts(&o, after)
	return o
}

// addCosts adds what the GPUs lose whose new occupancies are in after.
func (s *nodeView) addCosts(o *outcome, after map[int]gpu.Occupancy) {
	var whole []int
	for g := range s.gpus {
		occupancy, touched := after[g]
		if !touched {
			continue
		}
		cost := s.costOf(g, occupancy)
		o.loss += cost.loss
		o.holders += cost.holders
		o.free += cost.free
		o.opened += cost.opened
		if isWholeGPU(occupancy.Shape()) {
			whole = append(whole, g)
		}
	}
	o.residual = s.residualLoss(whole)
}
