package main

import (
	"math/bits"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// set is a set of the GPUs of a node.
type set uint32

func (s set) count() int { return bits.OnesCount32(uint32(s)) }

// all yields the GPUs of the set in order.
func (s set) all(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros32(uint32(s))) {
			return
		}
	}
}

// choose yields the sets of k of the GPUs.
func (s set) choose(k int, yield func(set)) {
	if k == 0 {
		yield(0)
		return
	}
	for rest := s; rest.count() >= k; rest &= rest - 1 {
		first := rest & -rest
		(rest &^ first).choose(k-1, func(others set) { yield(first | others) })
	}
}

// judge evaluates the quality of sets of GPUs of a node. It shares no code with the policies.
type judge struct {
	// bandwidth is by pair, in GB/s.
	bandwidth [][]float64
	// best is the bandwidth of the best set by its number of GPUs.
	best map[int]float64
	// known are the bandwidths of the sets that were evaluated.
	known map[set]float64
}

func newJudge(h hardware) *judge {
	j := &judge{best: map[int]float64{}, known: map[set]float64{}}
	for _, a := range h.gpus {
		var row []float64
		for b := range h.gpus {
			row = append(row, bandwidth(a.Link(b)))
		}
		j.bandwidth = append(j.bandwidth, row)
	}
	for _, k := range teams() {
		set(1<<len(h.gpus)-1).choose(k, func(s set) { j.best[k] = max(j.best[k], j.ring(s)) })
	}
	return j
}

// bandwidth is that of two GPUs over the link in one direction, in GB/s, about as measured by
// nccl-tests: 25 per NVLink, over PCIe 3 less with everything in between.
func bandwidth(l gpu.Link) float64 {
	if n := l.NVLinks(); n > 0 {
		return 25 * float64(n)
	}
	switch l {
	case gpu.LinkSelf, gpu.LinkSwitch:
		return 12
	case gpu.LinkMultiSwitch, gpu.LinkHostBridge:
		return 11
	case gpu.LinkNode:
		return 10
	case gpu.LinkUnknown, gpu.LinkSystem, gpu.LinkNVLink:
	}
	return 8
}

// quality returns the bandwidth of the set over that of the best set of the same size.
func (j *judge) quality(s set) float64 {
	if s.count() < 2 {
		return 1
	}
	return j.ring(s) / j.best[s.count()]
}

// ring returns the bandwidth of the weakest link in the best ring through the set.
func (j *judge) ring(s set) float64 {
	if s.count() < 2 {
		return 0
	}
	if known, ok := j.known[s]; ok {
		return known
	}
	first := bits.TrailingZeros32(uint32(s))
	best := 0.0
	j.walk(first, first, s&^(1<<first), 1e9, &best)
	j.known[s] = best
	return best
}

// walk goes from a GPU through the rest and back to the first, and keeps the best of the weakest links.
func (j *judge) walk(first, at int, rest set, weakest float64, best *float64) {
	if rest == 0 {
		*best = max(*best, min(weakest, j.bandwidth[at][first]))
		return
	}
	for next := range rest.all {
		// A path that is not better than the best known is not followed.
		if w := min(weakest, j.bandwidth[at][next]); w > *best {
			j.walk(first, next, rest&^(1<<next), w, best)
		}
	}
}
