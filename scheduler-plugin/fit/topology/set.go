package topology

import "math/bits"

// Set is a set of up to MaxTabled GPUs of a node: bit i is the GPU at position i.
type Set uint32

// SetOf returns the set of the GPUs at the positions, which must be below MaxTabled.
func SetOf(gpus []int) Set {
	var set Set
	for _, g := range gpus {
		set |= 1 << g
	}
	return set
}

// All yields the positions of the GPUs in ascending order.
func (s Set) All(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros32(uint32(s))) {
			return
		}
	}
}

// Members returns the positions of the GPUs in ascending order.
func (s Set) Members() []int {
	all := make([]int, 0, s.Count())
	for g := range s.All {
		all = append(all, g)
	}
	return all
}

// Count returns the number of GPUs.
func (s Set) Count() int { return bits.OnesCount32(uint32(s)) }

// Subsets yields the subsets that have k GPUs, in ascending order of Set.
//
// The subsets are enumerated as patterns of k bits over the positions of the members, with Gosper's hack: the next
// larger number with as many bits. For the members {1, 4, 6} and k = 2 the patterns 011, 101, 110 are the sets {1, 4},
// {1, 6}, {4, 6}.
func (s Set) Subsets(k int) func(yield func(Set) bool) {
	return func(yield func(Set) bool) {
		var members [MaxTabled]Set
		n := 0
		for rest := s; rest != 0; rest &= rest - 1 {
			members[n] = rest & -rest
			n++
		}
		for pattern := uint32(1)<<k - 1; pattern < 1<<n; {
			var set Set
			for rest := pattern; rest != 0; rest &= rest - 1 {
				set |= members[bits.TrailingZeros32(rest)]
			}
			if !yield(set) || pattern == 0 {
				return
			}
			// Gosper: move the lowest run of ones up by one and the rest of the run to the bottom.
			low := pattern & -pattern
			up := pattern + low
			pattern = up | (pattern^up)/low>>2
		}
	}
}
