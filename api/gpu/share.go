package gpu

import (
	"fmt"
	"math"
)

// Share is what one claim takes from a GPU in a shared shape, and what such a GPU can give. It is zero for other shapes.
type Share struct {
	// MemoryBytes is device memory in bytes.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// Shares counts shares. A claim takes one unless it requests more.
	Shares int `json:"shares,omitempty"`
	// Compute is a percentage of the multiprocessors. 0 means no limit for the claim, and takes nothing.
	Compute int `json:"compute,omitempty"`
}

func (s Share) plus(other Share) Share {
	return Share{MemoryBytes: s.MemoryBytes + other.MemoryBytes, Shares: s.Shares + other.Shares, Compute: s.Compute + other.Compute}
}

func (s Share) minus(other Share) Share {
	return Share{MemoryBytes: s.MemoryBytes - other.MemoryBytes, Shares: s.Shares - other.Shares, Compute: s.Compute - other.Compute}
}

// within reports whether no field of s exceeds that of other.
func (s Share) within(other Share) bool {
	return s.MemoryBytes <= other.MemoryBytes && s.Shares <= other.Shares && s.Compute <= other.Compute
}

// left returns what remains of total if s is taken. Where total is zero, which means no limit, the field is the largest value
// of its type. Memory does not fall below 0, since it is unsigned.
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

// lacks returns an error that wraps ErrOccupied if s is more than what taken leaves of total. The comparison is with the
// remainder and not with a sum, so that large requests do not overflow. A zero field of total does not limit.
func (s Share) lacks(taken, total Share) error {
	left := taken.left(total)
	switch {
	case total.MemoryBytes > 0 && s.MemoryBytes > left.MemoryBytes:
		return fmt.Errorf("needs %d bytes of memory, %d of %d are allocated: %w", s.MemoryBytes, taken.MemoryBytes, total.MemoryBytes, ErrOccupied)
	case total.Shares > 0 && s.Shares > left.Shares:
		return fmt.Errorf("needs %d shares, %d of %d are allocated: %w", s.Shares, taken.Shares, total.Shares, ErrOccupied)
	case total.Compute > 0 && s.Compute > left.Compute:
		return fmt.Errorf("needs %d %% of the multiprocessors, %d of %d %% are allocated: %w", s.Compute, taken.Compute, total.Compute, ErrOccupied)
	}
	return nil
}
