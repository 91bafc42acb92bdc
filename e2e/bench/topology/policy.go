package main

import (
	"math/bits"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// chooser chooses k GPUs of a node among its free ones; false when that fails.
type chooser interface {
	choose(free set, k int) (set, bool)
}

// lowest takes the first free GPUs, as first fit does.
type lowest struct{}

func (lowest) choose(free set, k int) (set, bool) {
	if free.count() < k {
		return 0, false
	}
	var taken set
	for g := range free.all {
		if taken.count() < k {
			taken |= 1 << g
		}
	}
	return taken, true
}

// pairScores are the scores of two GPUs in go-gpuallocator and HAMi, which add up such scores: a hundred per
// NVLink, plus one for the PCIe topology.
type pairScores [][]int

func newPairScores(h hardware) pairScores {
	var p pairScores
	for _, a := range h.gpus {
		var row []int
		for _, b := range h.gpus {
			row = append(row, pairScore(a, b))
		}
		p = append(p, row)
	}
	return p
}

func pairScore(a, b gpu.GPU) int {
	near := 10
	if a.NUMA == b.NUMA {
		near = 20
	}
	l := a.Link(b.Index)
	switch l {
	case gpu.LinkSelf:
		return 0
	case gpu.LinkHostBridge:
		return 30
	case gpu.LinkMultiSwitch:
		return 40
	case gpu.LinkSwitch:
		return 50
	case gpu.LinkUnknown, gpu.LinkSystem, gpu.LinkNode, gpu.LinkNVLink:
	}
	return 100*l.NVLinks() + near
}

// sum returns the score of the set: that of all its pairs.
func (p pairScores) sum(s set) int {
	sum := 0
	for a := range s.all {
		for b := range (s &^ (1<<(a+1) - 1)).all {
			sum += p[a][b]
		}
	}
	return sum
}

// hami takes the set with the highest score of its pairs, and as single GPU the one with the lowest scores
// to the others.
type hami struct{ pairScores }

func (p hami) choose(free set, k int) (set, bool) {
	if free.count() < k {
		return 0, false
	}
	var best set
	most := -1 << 31
	free.choose(k, func(s set) {
		score := p.sum(s)
		if k == 1 {
			score = -p.sum(free) + p.sum(free&^s)
		}
		if score > most {
			best, most = s, score
		}
	})
	return best, true
}

// partitions takes the best set of the best way to divide all free GPUs into sets of k, one of them smaller
// where the number is not a multiple (go-gpuallocator).
type partitions struct {
	pairScores
	// known is the highest score of a set of GPUs that is divided, by k.
	known map[int]map[set]int
}

func newPartitions(h hardware) partitions {
	return partitions{newPairScores(h), map[int]map[set]int{}}
}

func (p partitions) choose(free set, k int) (set, bool) {
	if free.count() < k {
		return 0, false
	}
	if p.known[k] == nil {
		p.known[k] = map[set]int{0: 0}
	}
	var best set
	most := -1
	for rest := free; rest != 0; {
		part := p.next(rest, k)
		if part.count() == k {
			if score := p.sum(part); score > most {
				best, most = part, score
			}
		}
		rest &^= part
	}
	return best, true
}

// divide returns the highest score of the rest when it is divided into sets of k.
func (p partitions) divide(rest set, k int) int {
	if known, ok := p.known[k][rest]; ok {
		return known
	}
	part := p.next(rest, k)
	score := p.sum(part) + p.divide(rest&^part, k)
	p.known[k][rest] = score
	return score
}

// next returns the set that the first GPU of the rest is in when the rest is divided best.
func (p partitions) next(rest set, k int) set {
	first := rest & -rest
	var best set
	most := -1
	try := func(others set) {
		part := first | others
		if score := p.sum(part) + p.divide(rest&^part, k); score > most {
			best, most = part, score
		}
	}
	size := min(k, rest.count())
	(rest &^ first).choose(size-1, try)
	if odd := rest.count() % k; odd != 0 && size == k {
		(rest &^ first).choose(odd-1, try)
	}
	return best
}

// blocks uses only aligned blocks of 1, 2, 4 and 8 GPUs, so that most large blocks stay whole (Koordinator's
// fixed partitions).
type blocks struct{}

func (blocks) choose(free set, k int) (set, bool) {
	var best set
	most := -1
	for start := 0; start < bits.Len32(uint32(free)); start += k {
		block := set(1<<k-1) << start
		if block&^free != 0 {
			continue
		}
		if left := intact(free &^ block); left > most {
			best, most = block, left
		}
	}
	return best, best != 0
}

// intact weighs the blocks that are free as a whole.
func intact(free set) int {
	score := 0
	for size, weight := range map[int]int{2: 1, 4: 100, 8: 10000} {
		for start := 0; start < bits.Len32(uint32(free)); start += size {
			if block := set(1<<size-1) << start; block&^free == 0 {
				score += weight
			}
		}
	}
	return score
}
