package topology

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
)

// Tables answer questions about sets of GPUs by lookup. A program that uses several GPUs is as fast as the weakest
// link of the ring through which they exchange data, so a set is as good as its best ring.
type Tables struct {
	gpus int
	// weakest is, by set, the strength of the weakest link in the best ring through the set. It is the maximum of
	// its type for sets of fewer than two GPUs.
	weakest []strength
	// best is, by number of GPUs, the maximum of weakest over all sets of that size.
	best []strength
	// residual is, by set, what its GPUs can offer to teams: the sum over the sizes in teamSizes of how many of its
	// GPUs can be given to disjoint teams of that size, each team weighted by its quality. The unit is TeamUnit.
	residual []int64
	// bestSets caches BestSet: by k, then by free set. Zero is an empty entry.
	bestSets []atomic.Pointer[[]atomic.Uint32]
}

// TeamUnit is the residual of one GPU in a team of perfect quality.
const TeamUnit = 1 << 16

// teamSizes returns the sizes of the teams that a residual counts. All count the same.
func teamSizes() []int { return []int{2, 4, 8} }

// newTables computes the tables: some ten million steps for 16 GPUs, a few thousand for 8.
func newTables(links [][]strength) *Tables {
	n := len(links)
	t := &Tables{
		gpus: n, weakest: make([]strength, 1<<n), residual: make([]int64, 1<<n), best: make([]strength, n+1),
		bestSets: make([]atomic.Pointer[[]atomic.Uint32], n+1),
	}
	for set := range t.weakest {
		if Set(set).Count() < 2 {
			t.weakest[set] = math.MaxInt32
		}
	}
	// In ascending order, so that the strongest threshold at which a set has a ring is written last.
	for _, threshold := range distinctStrengths(links) {
		t.raiseWeakest(links, threshold)
	}
	for set, weakest := range t.weakest {
		k := Set(set).Count()
		t.best[k] = max(t.best[k], weakest)
	}
	for _, k := range teamSizes() {
		if k <= n {
			t.addTeams(k)
		}
	}
	return t
}

// distinctStrengths returns the strengths of all links, ascending, without duplicates.
func distinctStrengths(links [][]strength) []strength {
	var all []strength
	for i, row := range links {
		all = append(all, row[i+1:]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// raiseWeakest sets weakest to the threshold for every set that has a ring whose links are all at least that strong.
//
// It is the Held-Karp dynamic program over sets, with bits for booleans. Fix the GPU with the lowest position of each
// set as the start. ends[set] holds the GPUs at which a path can end that begins at the start and visits every GPU of
// the set once, over links of at least the threshold. GPU j is in ends[set] if a path through set without j ends at a
// neighbor of j. The set has a ring if one of its ends is a neighbor of the start.
//
// Example: links 0-1, 1-2 and 0-2 reach the threshold. ends[{0}] = {0}, ends[{0,1}] = {1}, ends[{0,1,2}] = {1, 2}, and
// both are neighbors of 0: the set {0,1,2} has a ring.
func (t *Tables) raiseWeakest(links [][]strength, threshold strength) {
	neighbors := make([]Set, t.gpus)
	for i, row := range links {
		for j, s := range row {
			if i != j && s >= threshold {
				neighbors[i] |= 1 << j
			}
		}
	}
	ends := make([]Set, 1<<t.gpus)
	// Every subset of a set is a smaller number, so it is complete when the set is computed.
	for set := Set(1); int(set) < len(ends); set++ {
		start := Set(1) << bits.TrailingZeros32(uint32(set))
		if set == start {
			ends[set] = start
			continue
		}
		for rest := set &^ start; rest != 0; rest &= rest - 1 {
			last := bits.TrailingZeros32(uint32(rest))
			if ends[set&^(1<<last)]&neighbors[last] != 0 {
				ends[set] |= 1 << last
			}
		}
		if ends[set]&neighbors[bits.TrailingZeros32(uint32(start))] != 0 {
			t.weakest[set] = threshold
		}
	}
}

// addTeams adds to the residuals what the sets can offer to teams of k GPUs: the best way to divide a set into
// disjoint teams, with GPUs left over.
//
// offer[set] is the result for teams of size k alone. The GPU with the lowest position of the set is either in no
// team, which leaves offer[rest], or in a team with k-1 of the others, which adds the quality of that team to the
// offer of what remains. Every division is considered exactly once, since its team with the lowest GPU comes first.
func (t *Tables) addTeams(k int) {
	offer := make([]int64, len(t.residual))
	for set := Set(1); int(set) < len(offer); set++ {
		lowest := set & -set
		rest := set &^ lowest
		best := offer[rest]
		if rest.Count() >= k-1 {
			for others := range rest.Subsets(k - 1) {
				quality := int64(TeamUnit) * int64(t.weakest[others|lowest]) / int64(t.best[k])
				best = max(best, int64(k)*quality+offer[rest&^others])
			}
		}
		offer[set] = best
		t.residual[set] += best
	}
}

// quality returns the quality of the set, at most PerfectQuality.
func (t *Tables) quality(set Set) int {
	k := set.Count()
	if k < 2 || t.best[k].bandwidth() == 0 {
		return PerfectQuality
	}
	return int(PerfectQuality * t.weakest[set].bandwidth() / t.best[k].bandwidth())
}

// ResidualLoss returns how much the residual of the free GPUs decreases when the set is taken from them.
func (t *Tables) ResidualLoss(free, set Set) int64 { return t.residual[free] - t.residual[free&^set] }

// CompareRings returns a negative number if a has the better ring: the one with the stronger weakest link.
func (t *Tables) CompareRings(a, b Set) int { return cmp.Compare(t.weakest[b], t.weakest[a]) }

// BestSet returns the best k of the free GPUs: those with the best ring, and among equal ones the set whose loss
// leaves the largest residual. Results are cached.
func (t *Tables) BestSet(free Set, k int) Set {
	cache := t.bestSets[k].Load()
	if cache == nil {
		fresh := make([]atomic.Uint32, len(t.weakest))
		cache = &fresh
		t.bestSets[k].Store(cache)
	}
	if set := (*cache)[free].Load(); set != 0 {
		return Set(set)
	}
	var best Set
	for set := range free.Subsets(k) {
		if best == 0 || t.compareSets(free, set, best) < 0 {
			best = set
		}
	}
	(*cache)[free].Store(uint32(best))
	return best
}

// compareSets returns a negative number if a is the better set to take from the free GPUs.
func (t *Tables) compareSets(free, a, b Set) int {
	if c := t.CompareRings(a, b); c != 0 {
		return c
	}
	return cmp.Compare(t.ResidualLoss(free, a), t.ResidualLoss(free, b))
}
