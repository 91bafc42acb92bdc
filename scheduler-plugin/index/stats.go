package index

// Stats are totals of the cluster for metrics.
type Stats struct {
	// Nodes counts nodes with published devices of any driver. Delegated counts those with a Node.DelegateReason.
	Nodes, Delegated int
	// Load is the total of our GPUs.
	Load Load
	// Devices counts devices that claims hold, of any driver, wherever they are published. InFlight counts those whose
	// allocation is decided and not yet written. Nominations counts pods with nominated devices.
	Devices, InFlight, Nominations int
	// Reads counts how often the devices of a node were read from its ResourceSlices, the expensive part of processing
	// events.
	Reads uint64
}

// Load is the utilization of a set of GPUs.
type Load struct {
	// GPUs counts all GPUs, Idle those without a holder.
	GPUs, Idle int
	// Slices counts memory slices, Free those available for a MIG device. A GPU without MIG counts as one.
	Slices, Free int
}

// Stats returns the totals. Its cost does not depend on the size of the cluster.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stats
	s.Nominations = len(x.nominations)
	return s
}

// Load returns the utilization of the node's GPUs.
func (n *Node) Load() Load { return n.load }

// measureLoad computes the utilization of the GPUs.
func (n *Node) measureLoad() Load {
	l := Load{GPUs: len(n.Fit.GPUs)}
	for i := range n.Fit.GPUs {
		g := &n.Fit.GPUs[i]
		if g.Occupancy.Holders() == 0 {
			l.Idle++
		}
		l.Slices += g.Kind.Geometry.Total().Slices.Count()
		l.Free += g.Occupancy.Free().Count()
	}
	return l
}

// replace replaces the node's contribution to the totals. Nil means no node.
func (s *Stats) replace(before, after *Node) {
	s.add(before, -1)
	s.add(after, 1)
}

// add adds the node's contribution, multiplied by times.
func (s *Stats) add(n *Node, times int) {
	if n == nil {
		return
	}
	s.Nodes += times
	if n.DelegateReason != nil {
		s.Delegated += times
	}
	s.Load.GPUs += times * n.load.GPUs
	s.Load.Idle += times * n.load.Idle
	s.Load.Slices += times * n.load.Slices
	s.Load.Free += times * n.load.Free
}

// count adds the holdings, multiplied by times.
func (s *Stats) count(list []holding, times int) {
	s.Devices += times * len(list)
	for i := range list {
		if list[i].inFlight {
			s.InFlight += times
		}
	}
}
