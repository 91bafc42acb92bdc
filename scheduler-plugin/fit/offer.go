package fit

import (
	"cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// PlacementCost is what a MIG placement costs on a GPU. It compares GPUs of one node as well as of different nodes.
type PlacementCost struct {
	// Loss is the value that the placement takes from the GPU (Option.Loss).
	Loss int32
	// Holders is how many instances the GPU holds already, Free the number of its free memory slices.
	Holders, Free int
}

// Compare returns a negative number if b is better: the least loss, then the most MIG devices, since such a GPU becomes
// idle last anyway, then the fewest free memory slices.
func (b PlacementCost) Compare(other PlacementCost) int {
	return cmp.Or(cmp.Compare(b.Loss, other.Loss), cmp.Compare(other.Holders, b.Holders), cmp.Compare(b.Free, other.Free))
}

// offer is what taking a device costs.
type offer struct {
	PlacementCost
	residual int64
	// opens reports that the GPU was idle.
	opens bool
	// left is what remains of a GPU in a shared shape.
	left gpu.Share
	// device is the device, gpu its GPU, rank its place among the options of its profile there.
	device, gpu, rank int
}

// compare returns a negative number if o is better.
func (o *offer) compare(other *offer) int {
	if c := cmp.Or(cmp.Compare(o.Loss, other.Loss), cmp.Compare(o.residual, other.residual), o.Compare(other.PlacementCost)); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(o.left.MemoryBytes, other.left.MemoryBytes), cmp.Compare(o.left.Shares, other.left.Shares),
		cmp.Compare(o.gpu, other.gpu), cmp.Compare(o.rank, other.rank))
}

// offerOf returns what the device costs for the share, and false if it is not free.
func (s *nodeView) offerOf(device int, share gpu.Share) (offer, bool) {
	d := &s.node.Devices[device]
	g := &s.gpus[d.GPU]
	o := offer{device: device, gpu: d.GPU}
	switch d.Use.Shape {
	case gpu.MIG:
		free := s.addPlacement(d, &o)
		return o, free
	case gpu.Whole, gpu.VFIO:
		s.addIdleGPU(g, &o)
		return o, g.idle
	case gpu.TimeShare, gpu.MPS:
		use := gpu.Use{Shape: d.Use.Shape, Share: share}
		if !g.gpu.Occupancy.Fits(use) {
			return o, false
		}
		o.left = subtractShare(g.gpu.Occupancy.Left(), share)
		if g.idle {
			s.addIdleGPU(g, &o)
		} else {
			o.Holders = 1
		}
		return o, true
	case gpu.Monitor:
		return o, true
	case gpu.None:
	}
	return o, false
}

// addIdleGPU adds what it costs to take an idle GPU as a whole.
func (s *nodeView) addIdleGPU(g *gpuView, o *offer) {
	o.Loss, o.residual, o.opens, o.Free = g.row.value, g.residual, true, g.free
}

// addPlacement adds what a MIG placement costs, and reports whether it is free.
func (s *nodeView) addPlacement(d *Device, o *offer) bool {
	g := &s.gpus[d.GPU]
	kind := g.gpu.Kind
	option, rank := kind.optionAt(g.row, kind.profileIndex(d.Use.Placement.Profile), d.Use.Placement)
	if option == nil || !kind.exact && !g.gpu.Occupancy.Fits(d.Use) {
		return false
	}
	o.PlacementCost = PlacementCost{Loss: option.Loss, Holders: g.holders, Free: g.free}
	o.rank = rank
	if g.idle {
		o.residual, o.opens = g.residual, true
	}
	return true
}

// subtractShare returns what remains of left after taken.
func subtractShare(left, taken gpu.Share) gpu.Share {
	return gpu.Share{MemoryBytes: left.MemoryBytes - taken.MemoryBytes, Shares: left.Shares - taken.Shares, Compute: left.Compute - taken.Compute}
}
