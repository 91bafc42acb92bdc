package topology

import "cmp"

// Clique is an NVLink domain that spans nodes, as a group of pods sees it. Its size is counted in places: a place is
// what one pod of the group needs on one node, a number of idle GPUs or a node on which all GPUs are idle.
type Clique struct {
	// Name is the name of the clique.
	Name string
	// Members is the number of pods of the group that already have a node in the clique.
	Members int
	// Free is the number of free places.
	Free int
}

// Compare returns a negative number if c is the better clique for a group that needs so many more places. In order:
// most members of the group; room for all of it; the least loss of what the clique can offer to groups of common
// sizes; the fewest places left over; the name. Of cliques without room for all, the one with the most free places is
// better, so that the group is spread over few cliques.
func (c Clique) Compare(other Clique, wanted int) int {
	wanted = max(wanted, 1)
	if result := cmp.Or(cmp.Compare(other.Members, c.Members), -compareBool(c.Free >= wanted, other.Free >= wanted)); result != 0 {
		return result
	}
	if c.Free < wanted {
		return cmp.Or(cmp.Compare(other.Free, c.Free), cmp.Compare(c.Name, other.Name))
	}
	return cmp.Or(cmp.Compare(c.lossOf(wanted), other.lossOf(wanted)), cmp.Compare(c.Free, other.Free), cmp.Compare(c.Name, other.Name))
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// lossOf returns how much less the clique can offer after so many places are taken.
func (c Clique) lossOf(places int) int { return offerOf(c.Free) - offerOf(c.Free-places) }

// offerOf returns how many of the free places groups of common sizes can use, summed over the sizes. 18 is a full
// rack of a GB200 NVL72.
func offerOf(free int) int {
	sum := 0
	for _, size := range []int{2, 4, 8, 16, 18} {
		sum += free / size * size
	}
	return sum
}
