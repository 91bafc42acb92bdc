package gpu

import (
	"fmt"
	"math/bits"
)

// MaxSlices is the largest number of memory slices that a Mask can represent.
const MaxSlices = 16

// Mask is a set of memory slices: bit i is memory slice i.
type Mask uint16

// SpanMask returns the mask of size consecutive memory slices from start on. It is empty if the span is not within 0 to
// MaxSlices-1, or the size is not positive; it does not panic, because spans are read from files.
func SpanMask(start, size int) Mask {
	if start < 0 || size < 0 || size > MaxSlices || start > MaxSlices-size {
		return 0
	}
	return Mask((1<<size - 1) << start)
}

// Overlaps reports whether the masks have a memory slice in common.
func (m Mask) Overlaps(other Mask) bool { return m&other != 0 }

// Has reports whether the mask contains the memory slice.
func (m Mask) Has(slice int) bool { return SpanMask(slice, 1).Overlaps(m) }

// String lists the memory slices, such as "[0 1 5]".
func (m Mask) String() string {
	list := []int{}
	for i := range MaxSlices {
		if m.Has(i) {
			list = append(list, i)
		}
	}
	return fmt.Sprint(list)
}

// Count returns the number of memory slices in the mask.
func (m Mask) Count() int { return bits.OnesCount16(uint16(m)) }

// First returns the first memory slice; -1 if there is none.
func (m Mask) First() int {
	if m == 0 {
		return -1
	}
	return bits.TrailingZeros16(uint16(m))
}
