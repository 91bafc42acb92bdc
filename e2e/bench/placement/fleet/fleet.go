package fleet

import "math/bits"

// Fleet is the state of the GPUs.
type Fleet struct {
	*States
	// State is by GPU.
	State []int
	// Count is the number of GPUs by state.
	Count []int
	// Free is the number of free memory slices, Open by profile the number of placements that fit.
	Free int
	Open []int
	// members are by state: the GPUs in it, as bits.
	members [][]uint64
}

// New returns a fleet of empty GPUs.
func New(s *States, gpus int) *Fleet {
	f := &Fleet{
		States: s, State: make([]int, gpus), Count: make([]int, len(s.Held)), Open: make([]int, len(s.Profiles)),
		members: make([][]uint64, len(s.Held)),
	}
	for state := range f.members {
		f.members[state] = make([]uint64, (gpus+63)/64)
	}
	for gpu := range gpus {
		f.add(gpu, 0)
	}
	return f
}

// Take adds a placement that fits.
func (f *Fleet) Take(c Choice) { f.move(c.GPU, f.Taken[f.State[c.GPU]][c.Placement]) }

// Release removes a placement that is held.
func (f *Fleet) Release(c Choice) { f.move(c.GPU, f.Released[f.State[c.GPU]][c.Placement]) }

// First returns the first GPU in a state with at least one GPU.
func (f *Fleet) First(state int) int {
	for i, word := range f.members[state] {
		if word != 0 {
			return 64*i + bits.TrailingZeros64(word)
		}
	}
	return None
}

func (f *Fleet) move(gpu, state int) {
	old := f.State[gpu]
	f.Count[old]--
	f.Free -= f.Held[old].Free().Count()
	f.members[old][gpu/64] &^= 1 << (gpu % 64)
	for profile, open := range f.States.Open[old] {
		f.Open[profile] -= open
	}
	f.add(gpu, state)
}

func (f *Fleet) add(gpu, state int) {
	f.State[gpu] = state
	f.Count[state]++
	f.Free += f.Held[state].Free().Count()
	f.members[state][gpu/64] |= 1 << (gpu % 64)
	for profile, open := range f.States.Open[state] {
		f.Open[profile] += open
	}
}
