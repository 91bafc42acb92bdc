package fit

import (
	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// gpuView is a GPU as a search sees it.
type gpuView struct {
	gpu *GPU
	row *stateRow
	// holders is how many uses it holds, free how many memory slices it has free.
	holders, free int
	// idle reports that nothing is held or withheld, residual what the node's residual loses when the
	// GPU is opened.
	idle     bool
	residual int64
}

// nodeView is a node as a search sees it.
type nodeView struct {
	node *Node
	gpus []gpuView
	// idle are those of the first mostTabled GPUs that nothing is held of.
	idle topology.Set
	// wiring is nil when it is unknown, tables when there are none.
	wiring *topology.Wiring
	tables *topology.Tables
	// budget limits the searches.
	budget *Budget
}

// stackGPUs is the number of GPUs up to which a search for one device does not allocate.
const stackGPUs = 16

// newNodeView returns the view of the node. It uses the buffer if it is large enough.
func newNodeView(n *Node, buffer []gpuView) nodeView {
	s := nodeView{node: n, gpus: buffer}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		o := gpuView{gpu: g, row: g.Kind.rowOf(g.Kind.stateOf(&g.Occupancy)), idle: g.Occupancy.Idle()}
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

// lossBound returns a lower bound of what the device costs, by one lookup. It returns false only if the device is not free.
func (s *nodeView) lossBound(device int) (int32, bool) {
	d := &s.node.Devices[device]
	if d.Use.Shape != gpu.MIG {
		return 0, true
	}
	g := &s.gpus[d.GPU]
	kind := g.gpu.Kind
	option, _ := kind.optionAt(g.row, kind.profileIndex(d.Use.Placement.Profile), d.Use.Placement)
	if option == nil {
		return 0, false
	}
	return option.Loss, true
}
