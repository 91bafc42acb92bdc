package gpu

import (
	"fmt"
	"math/bits"
)

// MaxSlices is the largest number of memory slices that a Mask can name.
const MaxSlices = 16

// Mask is a set of memory slices: bit i stands for memory slice i.
type Mask uint16

// SpanMask returns the mask of size slices from start on.
func SpanMask(start, size int) Mask {
	return Mask((1<<size - 1) << start)
}

// Overlaps reports whether both masks name a common slice.
func (m Mask) Overlaps(other Mask) bool { return m&other != 0 }

// Has reports whether the mask names the slice.
func (m Mask) Has(slice int) bool { return m&(1<<slice) != 0 }

// String lists the slices, such as "[0 1 5]".
func (m Mask) String() string {
	list := []int{}
	for i := range MaxSlices {
		if m.Has(i) {
			list = append(list, i)
		}
	}
	return fmt.Sprint(list)
}

// Count returns the number of slices in the mask.
func (m Mask) Count() int { return bits.OnesCount16(uint16(m)) }
