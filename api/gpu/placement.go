package gpu

import "fmt"

// Placement is a MIG profile at a span of memory slices (nvmlGpuInstancePlacement_t). The zero value means no placement.
type Placement struct {
	// Profile is the profile's id (Profile.ID). Start and Size are in memory slices.
	Profile int `json:"profile"`
	Start   int `json:"start"`
	Size    int `json:"size"`
}

// Mask returns the memory slices of the placement; empty if no GPU can have it (SpanMask).
func (p Placement) Mask() Mask { return SpanMask(p.Start, p.Size) }

// String returns the placement in messages, such as "profile 19 at slices 3-3".
func (p Placement) String() string {
	return fmt.Sprintf("profile %d at slices %d-%d", p.Profile, p.Start, p.Start+p.Size-1)
}
