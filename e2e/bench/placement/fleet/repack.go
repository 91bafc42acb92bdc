package fleet

// Repack is the bound: a fleet that may move every instance at every moment, so that it refuses only
// demands that fit in no arrangement. It supports GPUs with eight memory slices.
//
// Such a GPU is a lower half of two pairs of slices and an upper half of a pair and a stub, which takes a
// profile of double memory or a single slice; 4g needs a lower half, 3g either one.
type Repack struct {
	gpus int
	held Counts
}

// Counts are instances by profile: 1g, 1g with double memory, 2g, 3g, 4g, 7g.
type Counts [6]int

// The profiles by position, as States has them.
const (
	p1g = iota
	p1gd
	p2g
	p3g
	p4g
	p7g
)

// NewRepack returns the bound for so many GPUs.
func NewRepack(gpus int) *Repack { return &Repack{gpus: gpus} }

// Place adds one of the profile, and reports whether there is room.
func (r *Repack) Place(profile int) bool {
	r.held[profile]++
	if r.held.fit(r.gpus) {
		return true
	}
	r.held[profile]--
	return false
}

// Release removes one of the profile.
func (r *Repack) Release(profile int) { r.held[profile]-- }

// fit reports whether some arrangement of the instances fits on so many GPUs.
func (n Counts) fit(gpus int) bool {
	halves := gpus - n[p7g] // of each kind
	if halves < 0 || n[p4g] > halves || n[p4g]+n[p3g] > 2*halves {
		return false
	}
	// Upper halves are smaller, so that 3g goes there first.
	down := max(0, n[p3g]-halves)
	lower, upper := halves-n[p4g]-down, halves-(n[p3g]-down)
	pairs, stubs := 2*lower+upper, upper
	if n[p2g] > pairs {
		return false
	}
	onStubs := min(n[p1gd], stubs)
	onPairs := n[p1gd] - onStubs
	return onPairs <= pairs-n[p2g] && n[p1g] <= 2*(pairs-n[p2g]-onPairs)+(stubs-onStubs)
}
