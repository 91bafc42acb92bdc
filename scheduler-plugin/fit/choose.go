package fit

import "github.com/tessera-gpu/tessera/api/gpu"

// Choose returns the best devices that the node has for the demand, and false when it has none. Of
// alternatives it takes the first that lets all requests be served, as the API demands; of devices those
// whose loss leaves most to the demands to come. The result depends only on the arguments.
func Choose(n *Node, d *Demand) (Choice, bool) {
	s := search{node: n, demand: d, picks: make([]Pick, len(d.Requests))}
	for _, g := range n.GPUs {
		s.occupied = append(s.occupied, g.Occupancy)
	}
	if !s.request(0) {
		return Choice{}, false
	}
	return Choice{Picks: s.picks}, true
}

// search is the state of a search for devices.
type search struct {
	node     *Node
	demand   *Demand
	occupied []gpu.Occupancy
	picks    []Pick
}

// request serves the requests from the position on.
func (s *search) request(i int) bool {
	if i == len(s.demand.Requests) {
		return true
	}
	for a := range s.demand.Requests[i].Alternatives {
		s.picks[i] = Pick{Alternative: a}
		if s.device(i, a, 0) {
			return true
		}
	}
	return false
}

// device finds the next device of an alternative, at or after the position.
func (s *search) device(i, a, from int) bool {
	alternative := s.demand.Requests[i].Alternatives[a]
	if len(s.picks[i].Devices) == alternative.Count {
		return s.request(i + 1)
	}
	for device := from; device < len(s.node.Devices); device++ {
		if !alternative.Candidates.Has(device) {
			continue
		}
		d := s.node.Devices[device]
		use := d.Use
		if alternative.Shares != nil {
			use.Share = alternative.Shares[device]
		}
		before := s.occupied[d.GPU]
		after, err := before.Take(use)
		if err != nil {
			continue
		}
		s.occupied[d.GPU] = after
		s.picks[i].Devices = append(s.picks[i].Devices, device)
		if s.device(i, a, device+1) {
			return true
		}
		s.occupied[d.GPU] = before
		s.picks[i].Devices = s.picks[i].Devices[:len(s.picks[i].Devices)-1]
	}
	return false
}
