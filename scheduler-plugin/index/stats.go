package index

// Stats sum up the cluster, for metrics.
type Stats struct {
	// Nodes publish devices, of any driver; Unclear ones among them have Node.Unclear.
	Nodes, Delegated int
	// Load is that of our GPUs.
	Load Load
	// Devices are held by claims, of any driver and wherever they are published; InFlight ones among them
	// are decided and not yet written. Promises are made to pods.
	Devices, InFlight, Nominations int
	// Reads counts how often the devices of a node were read from its slices, which is the costly part of
	// following the cluster.
	Reads uint64
}

// Load is how much is used of some GPUs.
type Load struct {
	// GPUs are all, Idle those that hold nothing.
	GPUs, Idle int
	// Slices are the memory slices, Free those that a MIG instance can take; a GPU without MIG has one.
	Slices, Free int
}

// Stats returns the sums. The cost does not depend on the size of the cluster.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stats
	s.Nominations = len(x.nominations)
	return s
}

// Load returns how much is used of the node's GPUs.
func (n *Node) Load() Load { return n.load }

// measureLoad returns the load of the GPUs.
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

// replace counts a node in another state; nil stands for none.
func (s *Stats) replace(before, after *Node) {
	s.add(before, -1)
	s.add(after, 1)
}

// add counts the node so many times.
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

// count counts the holdings so many times.
func (s *Stats) count(list []holding, times int) {
	s.Devices += times * len(list)
	for i := range list {
		if list[i].inFlight {
			s.InFlight += times
		}
	}
}
