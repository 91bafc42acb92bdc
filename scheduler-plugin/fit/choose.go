package fit

import (
	"math/bits"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// Choose returns the best devices of the node for the requirements, and false if there are none. It takes the first
// combination of alternatives with which all requests can be served; as in the API, the alternative of the first
// request changes last. Among devices it takes those that leave the most, in the order of Choice.Score.
//
// If the requirements can be satisfied, a choice is found. It is optimal for one device, and for one request for whole GPUs.
// Several requests are served greedily.
//
// The steps of the search are taken from the budget. If it is exceeded (Budget.Exceeded), the result may be missing or
// not the best one. The result depends only on the arguments.
func Choose(n *Node, req *Requirements, b *Budget) (Choice, bool) {
	var buffer [stackGPUs]gpuView
	s := newNodeView(n, buffer[:0])
	s.budget = b
	if !b.Spend(nodeSteps(n)) {
		return Choice{}, false
	}
	if len(req.Requests) == 1 {
		return s.chooseSingle(n, req)
	}
	return newHeapNodeView(n, b).chooseSeveral(req)
}

// nodeSteps is the number of steps of a simple search on the node, which excludes most devices by a comparison.
func nodeSteps(n *Node) int { return 1 + len(n.GPUs)/4 + len(n.Devices)/64 }

// newHeapNodeView returns the view of the node on the heap, for searches that keep it. Other searches keep the view on
// the stack.
func newHeapNodeView(n *Node, b *Budget) *nodeView {
	s := newNodeView(n, nil)
	s.budget = b
	return &s
}

// chooseSingle serves the only request.
func (s *nodeView) chooseSingle(n *Node, req *Requirements) (Choice, bool) {
	alternatives := req.Requests[0].Alternatives
	for i := range alternatives {
		if devices, o, ok := s.serveAlternative(n, req, i); ok {
			o.rank = alternativeRank(req.Requests[0], i)
			return Choice{Picks: []Pick{{Alternative: i, Devices: devices}}, Score: s.score(o)}, true
		}
	}
	return Choice{}, false
}

// maxAlternatives is the number of alternatives that the API allows.
const maxAlternatives = 8

// alternativeRank returns how kube-scheduler ranks the alternative of a request: 0 for a request without alternatives.
func alternativeRank(r Request, alternative int) int {
	if len(r.Alternatives) == 1 {
		return 0
	}
	return maxAlternatives - alternative
}

// serveAlternative returns the devices for an alternative of the only request.
func (s *nodeView) serveAlternative(n *Node, req *Requirements, alternative int) ([]int, outcome, bool) {
	a := &req.Requests[0].Alternatives[alternative]
	if len(req.Constraints) == 0 {
		if a.Count == 1 {
			return s.bestDevice(a)
		}
		if t, ok := s.teamOf(a); ok {
			return t.chooseTeam(a.Count)
		}
	}
	best := newHeapNodeView(n, s.budget).planFor(req, []int{alternative})
	if best == nil {
		return nil, outcome{}, false
	}
	return best.picks[0].Devices, best.outcome, true
}

// bestDevice returns the best device for an alternative that needs one device.
func (s *nodeView) bestDevice(a *Alternative) ([]int, outcome, bool) {
	var best offer
	found := false
	for i, word := range a.Candidates {
		for ; word != 0; word &= word - 1 {
			device := i*64 + bits.TrailingZeros64(word)
			if loss, free := s.lossBound(device); !free || found && loss > best.Loss {
				continue
			}
			o, free := s.offerOf(device, a.shareOf(device))
			if free && (!found || o.compare(&best) < 0) {
				best, found = o, true
			}
		}
	}
	if !found {
		return nil, outcome{}, false
	}
	return []int{best.device}, s.outcomeOfOffer(&best), true
}

// outcomeOfOffer returns the outcome of taking one offer.
func (s *nodeView) outcomeOfOffer(o *offer) outcome {
	out := outcome{quality: topology.PerfectQuality, loss: int64(o.Loss), holders: o.Holders, free: o.Free}
	if isWholeGPU(s.node.Devices[o.device].Use.Shape) {
		out.residual = o.residual
	}
	if o.opens {
		out.opened = 1
	}
	if total := s.gpus[o.gpu].gpu.Occupancy.Total().MemoryBytes; total > 0 && o.left.MemoryBytes > 0 {
		out.free = int(o.left.MemoryBytes / (total/16 + 1))
	}
	return out
}
