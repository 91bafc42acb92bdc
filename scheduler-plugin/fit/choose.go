package fit

import (
	"math/bits"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// Choose returns the best devices that the node has for the demand, and false when it has none. Of
// alternatives it takes the first that lets all requests be served, as the API demands: those of the first
// request change last. Of devices it takes those whose loss leaves most to the demands to come, in the
// order of Choice.Score.
//
// Whenever there is a way to serve the demand, one is found. It is the best one for one device, for whole
// GPUs, and for a demand of few parts (mostParts) but for what sets of whole GPUs leave to the other
// requests (mostSets); a demand of more parts is served in steps, each at its best. The result depends only
// on the arguments.
func Choose(n *Node, req *Requirements) (Choice, bool) {
	var buffer [stackGPUs]gpuView
	s := newNodeView(n, buffer[:0])
	if len(req.Requests) == 1 {
		return s.chooseSingle(n, req)
	}
	return newHeapNodeView(n).chooseSeveral(req)
}

// newHeapNodeView returns the sight of the node for a search that goes through memory. Those that do not keep
// theirs on the stack.
func newHeapNodeView(n *Node) *nodeView {
	s := newNodeView(n, nil)
	return &s
}

// chooseSingle serves the only request of the demand.
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

// maxAlternatives is how many alternatives the API allows.
const maxAlternatives = 8

// alternativeRank returns how kube-scheduler ranks the alternative of a request: nothing where there is no choice.
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
	best := newHeapNodeView(n).planFor(req, []int{alternative})
	if best == nil {
		return nil, outcome{}, false
	}
	return best.picks[0].Devices, best.outcome, true
}

// bestDevice returns the best device for an alternative that needs one.
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

// outcomeOfOffer returns that of one offer.
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
