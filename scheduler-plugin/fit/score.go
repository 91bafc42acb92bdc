package fit

import "github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"

// outcome is the effect of a choice on the node, as far as nodes are compared by it.
type outcome struct {
	// rank is the sum of eight less the position of the alternative over all requests that have a choice.
	rank int
	// quality is that of the worst set of whole GPUs, up to perfect.
	quality int
	// loss is the value lost, residual what the node's residual loses with whole GPUs. Where a slice or a
	// share opens a GPU the residual says which one, but not on which node: the more a node is used the
	// better, and the residual of few idle GPUs does not order nodes so.
	loss     int64
	residual int64
	// opened is the number of GPUs that were idle.
	opened int
	// holders is the number of instances on the GPUs of the choice, free that of free slices, or for a
	// share the sixteenths of the GPU that are left.
	holders, free int
}

// The fields of a score, from the least to the most important, and their widths in bits.
const (
	usedBits     = 4
	freeBits     = 4
	holdersBits  = 4
	openedBits   = 5
	residualBits = 10
	lossBits     = 16
	qualityBits  = 10
	rankBits     = 10
)

// score packs the outcome into a number so that the greater number is the better choice. In order of importance: the
// alternatives, as kube-scheduler ranks them; the link quality of sets of whole GPUs; the least loss of value; the
// least loss of residual; the fewest idle GPUs opened; the most MIG devices on the GPUs of the choice; the fewest free
// memory slices there; the most GPUs in use on the node. A number that is too large for its field counts as the field's
// maximum.
func (s *nodeView) score(o outcome) int64 {
	used := 0
	for i := range s.gpus {
		if !s.gpus[i].idle {
			used++
		}
	}
	packed := appendField(0, o.rank, rankBits)
	packed = appendField(packed, o.quality, qualityBits)
	packed = appendInverseField(packed, o.loss, lossBits)
	// The resolution of the score is a sixteenth of a GPU in a team.
	packed = appendInverseField(packed, o.residual/(topology.TeamUnit/16), residualBits)
	packed = appendInverseField(packed, int64(o.opened), openedBits)
	packed = appendField(packed, o.holders, holdersBits)
	packed = appendInverseField(packed, int64(o.free), freeBits)
	return appendField(packed, used, usedBits)
}

func appendField(packed int64, value, width int) int64 {
	most := int64(1)<<width - 1
	return packed<<width | min(max(int64(value), 0), most)
}

func appendInverseField(packed, value int64, width int) int64 {
	most := int64(1)<<width - 1
	return packed<<width | most - min(max(value, 0), most)
}
