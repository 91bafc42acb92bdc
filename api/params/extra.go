package params

import "slices"

// Extra is a group of device nodes that belong to the node and not to a GPU. Containers get them only if their DeviceClass has
// them.
type Extra string

// The extras.
const (
	// GDS is GPUDirect Storage.
	GDS Extra = "gds"
	// GDRCopy is NVIDIA's library for copies between GPU and CPU memory without the driver.
	GDRCopy Extra = "gdrcopy"
	// RDMA is InfiniBand and RoCE.
	RDMA Extra = "rdma"
)

// extraOrder returns the extras in the order in which they are listed. The position is the bit in Extras.
func extraOrder() []Extra { return []Extra{GDS, GDRCopy, RDMA} }

// ExtraNames returns the names of all extras.
func ExtraNames() []string {
	var names []string
	for _, e := range extraOrder() {
		names = append(names, string(e))
	}
	return names
}

// Extras is a set of extras. The zero value is empty. Sets are comparable.
type Extras uint8

// ExtrasOf returns the set of the extras. Unknown ones are ignored.
func ExtrasOf(list ...Extra) Extras {
	var set Extras
	for _, e := range list {
		if i := slices.Index(extraOrder(), e); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// List returns the extras of the set in order; nil for an empty set.
func (s Extras) List() []Extra {
	var list []Extra
	for i, e := range extraOrder() {
		if s&(1<<i) != 0 {
			list = append(list, e)
		}
	}
	return list
}
