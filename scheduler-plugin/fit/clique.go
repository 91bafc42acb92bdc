package fit

import "cmp"

// Clique is an NVLink domain that spans nodes, as far as it matters to a group of pods that want to share
// one: which nodes belong to it says GPU.Clique. It is counted in places for one pod each: nodes of which all
// GPUs are idle, or as many idle GPUs of one node as a pod takes.
type Clique struct {
	// Name is the clique's, as in GPU.Clique.
	Name string
	// Members is how many pods of the group have a node in the clique already.
	Members int
	// Free is the number of its places that are free.
	Free int
}

// Compare returns a negative number when c is the better clique for a group that still wants so many
// free nodes: the one that has most of the group already, then one that has room for all of it, then
// the one that loses least of what it can still offer to groups of the usual sizes, then the one that has
// the fewest nodes left over, then by name. Of cliques without room for all the one with most free nodes is
// better, so that the group is spread over few.
func (c Clique) Compare(other Clique, wanted int) int {
	wanted = max(wanted, 1)
	if result := cmp.Or(cmp.Compare(other.Members, c.Members), -compareBool(c.Free >= wanted, other.Free >= wanted)); result != 0 {
		return result
	}
	if c.Free < wanted {
		return cmp.Or(cmp.Compare(other.Free, c.Free), cmp.Compare(c.Name, other.Name))
	}
	return cmp.Or(cmp.Compare(c.lost(wanted), other.lost(wanted)), cmp.Compare(c.Free, other.Free), cmp.Compare(c.Name, other.Name))
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

// lost returns what the clique can offer less once so many of its nodes are taken.
func (c Clique) lost(nodes int) int { return offers(c.Free) - offers(c.Free-nodes) }

// offers returns how many nodes groups of each of the usual sizes could have of the free ones, summed over
// the sizes: 18 is a full rack.
func offers(free int) int {
	sum := 0
	for _, size := range []int{2, 4, 8, 16, 18} {
		sum += free / size * size
	}
	return sum
}
