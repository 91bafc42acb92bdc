package fit

import "cmp"

// Bid is what a GPU offers for a MIG placement. Bids compare GPUs of one node as well as of different
// nodes.
type Bid struct {
	// Loss is the value that the placement takes from the GPU (Option.Loss).
	Loss int32
	// Holders is how many instances the GPU holds already, Free the number of its free memory slices.
	Holders, Free int
}

// Compare returns a negative number when b is the better bid: the least loss, then the most instances,
// since such a GPU is the last to become empty anyway, then the fewest free slices.
func (b Bid) Compare(other Bid) int {
	return cmp.Or(cmp.Compare(b.Loss, other.Loss), cmp.Compare(other.Holders, b.Holders), cmp.Compare(b.Free, other.Free))
}
