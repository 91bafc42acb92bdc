package fit

import (
	"cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// outlook is what a search keeps in mind of a GPU.
type outlook struct {
	gpu *GPU
	row *row
	// holders is how many uses it holds, free how many memory slices it has free.
	holders, free int
	// idle reports that nothing is held or withheld, residual what the node's residual loses when the
	// GPU is opened.
	idle     bool
	residual int64
}

// sight is a node as a search sees it.
type sight struct {
	node *Node
	gpus []outlook
	// idle are those of the first mostTabled GPUs that nothing is held of.
	idle topology.Set
	// wiring is nil when it is unknown, tables when there are none.
	wiring *topology.Wiring
	tables *topology.Tables
}

// fewGPUs is the number of GPUs of a node up to which a search for one device does not allocate.
const fewGPUs = 16

// look returns the sight of the node, with the outlooks in the buffer if there is room.
func look(n *Node, buffer []outlook) sight {
	s := sight{node: n, gpus: buffer}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		o := outlook{gpu: g, row: g.Kind.row(g.Kind.state(&g.Occupancy)), idle: g.Occupancy.Idle()}
		o.holders, o.free = g.Occupancy.Holders(), g.Occupancy.Free().Count()
		if o.idle && i < topology.MaxTabled {
			s.idle |= 1 << i
		}
		s.gpus = append(s.gpus, o)
	}
	if n.Wiring == nil || n.Wiring.GPUs() != len(n.GPUs) {
		return s
	}
	s.wiring, s.tables = n.Wiring, n.Wiring.Tables()
	for i := range s.gpus {
		if s.gpus[i].idle && s.tables != nil {
			s.gpus[i].residual = s.tables.ResidualLoss(s.idle, 1<<i)
		}
	}
	return s
}

// loss returns no more than what the device costs, quickly, and false only when it is not free.
func (s *sight) loss(device int) (int32, bool) {
	d := &s.node.Devices[device]
	if d.Use.Shape != gpu.MIG {
		return 0, true
	}
	g := &s.gpus[d.GPU]
	kind := g.gpu.Kind
	option, _ := kind.option(g.row, kind.position(d.Use.Placement.Profile), d.Use.Placement)
	if option == nil {
		return 0, false
	}
	return option.Loss, true
}

// offer is what taking a device costs.
type offer struct {
	Bid
	residual int64
	// opens reports that the GPU was idle.
	opens bool
	// left is what remains of a GPU in a shared shape.
	left gpu.Share
	// device is the device, gpu its GPU, rank its place among the options of its profile there.
	device, gpu, rank int
}

// compare returns a negative number when o is the better offer.
func (o *offer) compare(other *offer) int {
	if c := cmp.Or(cmp.Compare(o.Loss, other.Loss), cmp.Compare(o.residual, other.residual), o.Compare(other.Bid)); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(o.left.MemoryBytes, other.left.MemoryBytes), cmp.Compare(o.left.Shares, other.left.Shares),
		cmp.Compare(o.gpu, other.gpu), cmp.Compare(o.rank, other.rank))
}

// offer returns what the device costs a demand for the share, and false when it is not free.
func (s *sight) offer(device int, share gpu.Share) (offer, bool) {
	d := &s.node.Devices[device]
	g := &s.gpus[d.GPU]
	o := offer{device: device, gpu: d.GPU}
	switch d.Use.Shape {
	case gpu.MIG:
		free := s.offerSlices(d, &o)
		return o, free
	case gpu.Whole, gpu.VFIO:
		s.open(g, &o)
		return o, g.idle
	case gpu.TimeShare, gpu.MPS:
		use := gpu.Use{Shape: d.Use.Shape, Share: share}
		if !g.gpu.Occupancy.Fits(use) {
			return o, false
		}
		o.left = minus(g.gpu.Occupancy.Left(), share)
		if g.idle {
			s.open(g, &o)
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

// open adds what it costs to take an idle GPU as a whole.
func (s *sight) open(g *outlook, o *offer) {
	o.Loss, o.residual, o.opens, o.Free = g.row.value, g.residual, true, g.free
}

// offerSlices adds what a MIG placement costs, and reports whether it is free.
func (s *sight) offerSlices(d *Device, o *offer) bool {
	g := &s.gpus[d.GPU]
	kind := g.gpu.Kind
	option, rank := kind.option(g.row, kind.position(d.Use.Placement.Profile), d.Use.Placement)
	if option == nil || !kind.exact && !g.gpu.Occupancy.Fits(d.Use) {
		return false
	}
	o.Bid = Bid{Loss: option.Loss, Holders: g.holders, Free: g.free}
	o.rank = rank
	if g.idle {
		o.residual, o.opens = g.residual, true
	}
	return true
}

// minus returns what is left of what is left.
func minus(left, taken gpu.Share) gpu.Share {
	return gpu.Share{MemoryBytes: left.MemoryBytes - taken.MemoryBytes, Shares: left.Shares - taken.Shares, Compute: left.Compute - taken.Compute}
}
