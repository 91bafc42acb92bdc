package gpu

import "fmt"

// Placement is a MIG profile at a span of memory slices. Start and Size are in memory slices
// (nvmlGpuInstancePlacement_t). The zero value is no placement.
type Placement struct {
	Profile int `json:"profile"`
	Start   int `json:"start"`
	Size    int `json:"size"`
}

// Mask returns the memory slices of the placement.
func (p Placement) Mask() Mask { return SpanMask(p.Start, p.Size) }

// String returns the placement for messages, such as "profile 19 at slices 3-3".
func (p Placement) String() string {
	return fmt.Sprintf("profile %d at slices %d-%d", p.Profile, p.Start, p.Start+p.Size-1)
}
