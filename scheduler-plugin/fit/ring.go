package fit

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
)

// rings are the tables of a wiring, by set of GPUs.
type rings struct {
	gpus int
	// weakest is the strength of the weakest link in the best ring through the set; of a single GPU, and
	// of none, it is the greatest number.
	weakest []strength
	// best is the greatest of weakest by the number of GPUs.
	best []strength
	// residual is what the set offers when it is free (R): the sum over the sizes of teams of how many
	// GPUs can be given out in such teams, each team counted at its quality, in units of share.
	residual []int64
	// chosen remembers best sets: by size, then by free set.
	chosen []atomic.Pointer[[]atomic.Uint32]
}

// share is what one GPU in a team of perfect quality counts in a residual.
const share = 1 << 16

// teams are the sizes of the sets whose demand a residual stands for, all in equal demand.
func teams() []int { return []int{2, 4, 8} }

// newRings makes the tables: for 16 GPUs some ten million steps, for 8 a few thousand.
func newRings(links [][]strength) *rings {
	n := len(links)
	r := &rings{gpus: n, weakest: make([]strength, 1<<n), residual: make([]int64, 1<<n), best: make([]strength, n+1), chosen: make([]atomic.Pointer[[]atomic.Uint32], n+1)}
	for set := range r.weakest {
		if gpuSet(set).count() < 2 {
			r.weakest[set] = math.MaxInt32
		}
	}
	for _, threshold := range thresholds(links) {
		r.close(links, threshold)
	}
	for set, weakest := range r.weakest {
		k := gpuSet(set).count()
		r.best[k] = max(r.best[k], weakest)
	}
	for _, k := range teams() {
		if k <= n {
			r.addTeams(k)
		}
	}
	return r
}

// thresholds returns the strengths that links have, ascending.
func thresholds(links [][]strength) []strength {
	var all []strength
	for i, row := range links {
		all = append(all, row[i+1:]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// close raises weakest to the threshold for every set with a ring of links that are at least so strong.
// It grows paths from the first GPU of the set: ends has, by set, the GPUs at which such a path through
// the whole set can end.
func (r *rings) close(links [][]strength, threshold strength) {
	near := make([]gpuSet, r.gpus)
	for i, row := range links {
		for j, s := range row {
			if i != j && s >= threshold {
				near[i] |= 1 << j
			}
		}
	}
	ends := make([]gpuSet, 1<<r.gpus)
	for set := gpuSet(1); int(set) < len(ends); set++ {
		first := gpuSet(1) << bits.TrailingZeros32(uint32(set))
		if set == first {
			ends[set] = first
			continue
		}
		for rest := set &^ first; rest != 0; rest &= rest - 1 {
			last := bits.TrailingZeros32(uint32(rest))
			if ends[set&^(1<<last)]&near[last] != 0 {
				ends[set] |= 1 << last
			}
		}
		if ends[set]&near[bits.TrailingZeros32(uint32(first))] != 0 {
			r.weakest[set] = threshold
		}
	}
}

// addTeams adds to the residuals what the sets offer to teams of k GPUs: the best way to give out
// disjoint teams. The first GPU of a set is in none of them, or in one with k-1 others.
func (r *rings) addTeams(k int) {
	offer := make([]int64, len(r.residual))
	for set := gpuSet(1); int(set) < len(offer); set++ {
		first := set & -set
		rest := set &^ first
		best := offer[rest]
		if rest.count() >= k-1 {
			for team := range subsets(rest, k-1) {
				quality := int64(share) * int64(r.weakest[team|first]) / int64(r.best[k])
				best = max(best, int64(k)*quality+offer[rest&^team])
			}
		}
		offer[set] = best
		r.residual[set] += best
	}
}

// subsets yields the sets of k of the GPUs, in ascending order.
func subsets(of gpuSet, k int) func(yield func(gpuSet) bool) {
	return func(yield func(gpuSet) bool) {
		var members [mostTabled]gpuSet
		n := 0
		for rest := of; rest != 0; rest &= rest - 1 {
			members[n] = rest & -rest
			n++
		}
		// pattern is a set of positions in members; the next one of as many bits follows Gosper.
		for pattern := uint32(1)<<k - 1; pattern < 1<<n; {
			var set gpuSet
			for rest := pattern; rest != 0; rest &= rest - 1 {
				set |= members[bits.TrailingZeros32(rest)]
			}
			if !yield(set) || pattern == 0 {
				return
			}
			low := pattern & -pattern
			up := pattern + low
			pattern = up | (pattern^up)/low>>2
		}
	}
}

// quality returns that of the set, at most perfect.
func (r *rings) quality(set gpuSet) int {
	k := set.count()
	if k < 2 || r.best[k].bandwidth() == 0 {
		return perfect
	}
	return int(perfect * r.weakest[set].bandwidth() / r.best[k].bandwidth())
}

// lost returns what the residual of the free GPUs loses with the set.
func (r *rings) lost(free, set gpuSet) int64 { return r.residual[free] - r.residual[free&^set] }

// choose returns the best k of the free GPUs.
func (r *rings) choose(free gpuSet, k int) gpuSet {
	memory := r.chosen[k].Load()
	if memory == nil {
		fresh := make([]atomic.Uint32, len(r.weakest))
		memory = &fresh
		r.chosen[k].Store(memory)
	}
	if set := (*memory)[free].Load(); set != 0 {
		return gpuSet(set)
	}
	var best gpuSet
	for set := range subsets(free, k) {
		if best == 0 || r.compare(free, set, best) < 0 {
			best = set
		}
	}
	(*memory)[free].Store(uint32(best))
	return best
}

// compare returns a negative number when a is the better set to take from the free GPUs.
func (r *rings) compare(free, a, b gpuSet) int {
	if c := cmp.Compare(r.weakest[b], r.weakest[a]); c != 0 {
		return c
	}
	return cmp.Compare(r.lost(free, a), r.lost(free, b))
}
