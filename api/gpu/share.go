package gpu

import (
	"fmt"
	"math"
)

// Share is what one claim takes from a GPU in a shared shape, and what such a GPU has in total. In any
// other shape it is zero.
type Share struct {
	// MemoryBytes is device memory.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// Shares counts claims: a claim takes one unless it asks for more.
	Shares int `json:"shares,omitempty"`
	// Compute is a percentage of the multiprocessors; 0 states no limit and takes nothing.
	Compute int `json:"compute,omitempty"`
}

func (s Share) plus(other Share) Share {
	return Share{MemoryBytes: s.MemoryBytes + other.MemoryBytes, Shares: s.Shares + other.Shares, Compute: s.Compute + other.Compute}
}

func (s Share) minus(other Share) Share {
	return Share{MemoryBytes: s.MemoryBytes - other.MemoryBytes, Shares: s.Shares - other.Shares, Compute: s.Compute - other.Compute}
}

// within reports whether the share is a part of the other.
func (s Share) within(other Share) bool {
	return s.MemoryBytes <= other.MemoryBytes && s.Shares <= other.Shares && s.Compute <= other.Compute
}

// left returns what of the total is left beside what is taken; the largest number for a zero total.
func (s Share) left(total Share) Share {
	left := Share{MemoryBytes: math.MaxUint64, Shares: math.MaxInt, Compute: math.MaxInt}
	if total.MemoryBytes > 0 {
		left.MemoryBytes = total.MemoryBytes - min(s.MemoryBytes, total.MemoryBytes)
	}
	if total.Shares > 0 {
		left.Shares = total.Shares - s.Shares
	}
	if total.Compute > 0 {
		left.Compute = total.Compute - s.Compute
	}
	return left
}

// lacks returns an error that names what of the share is more than is left. A zero total limits
// nothing: the hardware did not tell, or nobody counts.
func (s Share) lacks(taken, total Share) error {
	left := taken.left(total)
	switch {
	case total.MemoryBytes > 0 && s.MemoryBytes > left.MemoryBytes:
		return fmt.Errorf("needs %d bytes of memory, %d of %d are shared out: %w", s.MemoryBytes, taken.MemoryBytes, total.MemoryBytes, ErrOccupied)
	case total.Shares > 0 && s.Shares > left.Shares:
		return fmt.Errorf("needs %d shares, %d of %d are held: %w", s.Shares, taken.Shares, total.Shares, ErrOccupied)
	case total.Compute > 0 && s.Compute > left.Compute:
		return fmt.Errorf("needs %d %% of the multiprocessors, %d of %d %% are promised: %w", s.Compute, taken.Compute, total.Compute, ErrOccupied)
	}
	return nil
}
