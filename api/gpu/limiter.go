package gpu

import "math"

// Limiter is how the driver of a node limits the memory that the processes of a control group allocate on a GPU (driver 615 and newer, cgroup v2): the name
// of the controller, or empty. Source: memacct.c of NVIDIA's open kernel modules.
type Limiter string

// The limiters. With misc, a group can inherit the limit of one that was removed, and what its processes allocated before the limit does not count.
const (
	NotLimited    Limiter = ""
	LimitedByMisc Limiter = "misc"
	LimitedByDmem Limiter = "dmem"
)

// NoMemoryLimit is the limit of a control group that can allocate all memory of a GPU (nvml.h, NVML_DEVICE_MEMORY_LIMIT_MAX).
const NoMemoryLimit uint64 = math.MaxUint64

// Limits reports whether the driver limits the memory of the containers that share a GPU in the shape. With misc, it charges the process that opened the GPU:
// whether that is an MPS client or its server is not documented.
func (l Limiter) Limits(s Shape) bool {
	return l == LimitedByDmem && s == MPS || l != NotLimited && s == TimeShare
}

// MemoryLimit returns what the containers that have the use can allocate of the GPU's memory in bytes, and whether a limit must be set for that. It is set
// for a whole GPU too where a group can have inherited one.
func (l Limiter) MemoryLimit(u Use) (bytes uint64, set bool) {
	shared := u.Shape == TimeShare || u.Shape == MPS
	switch {
	case l == NotLimited:
		return NoMemoryLimit, false
	case shared && u.Share.MemoryBytes > 0:
		return u.Share.MemoryBytes, true
	case shared, u.Shape == Whole:
		return NoMemoryLimit, l == LimitedByMisc
	}
	return NoMemoryLimit, false
}
