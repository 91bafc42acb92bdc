package prepare

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// State is the state of a claim.
type State string

// The states of a record. The values are stored on disk.
const (
	// StatePreparing is written, with all placements, before the first side effect.
	StatePreparing State = "Preparing"
	// StatePrepared is written after the last side effect: the claim's devices are usable.
	StatePrepared State = "Prepared"
	// StateUnpreparing is written before anything is released.
	StateUnpreparing State = "Unpreparing"
)

// The states of a claim without a readable record; they are never written.
const (
	// stateUnrecorded is a claim without a record.
	stateUnrecorded State = ""
	// stateDamaged is a claim whose record was set aside: MIG devices at its placements were created for it.
	stateDamaged State = "Damaged"
)

// Record is the state of one claim on disk. It is sufficient to complete or undo the claim after a crash at any point, without the API
// server.
type Record struct {
	Ref
	State State
	// BootID is the boot in which the record was written. The hardware state of another boot no longer exists.
	BootID string
	// Wanted are the devices of the claim, in the order of its allocation.
	Wanted []Wanted
	// Instances are the MIG devices that were created and verified for the claim, in the order of
	// Wanted.
	Instances []gpu.Instance
}

// Owns reports whether the record contains the placement on the GPU.
func (r Record) Owns(gpuName string, p gpu.Placement) bool {
	return slices.ContainsFunc(r.on(gpuName), func(w Wanted) bool {
		return w.Use.Shape == gpu.MIG && w.Use.Placement == p
	})
}

// on returns the devices that the claim holds on the GPU. Devices with admin access are not held.
func (r Record) on(gpuName string) []Wanted {
	var held []Wanted
	for _, w := range r.Wanted {
		if !w.Admin && w.Use.GPU == gpuName {
			held = append(held, w)
		}
	}
	return held
}

// SharedMemory returns the memory in bytes that the claims have of GPUs in a shared shape, by the GPU's name.
func SharedMemory(records []Record) map[string]uint64 {
	sum := map[string]uint64{}
	for _, r := range records {
		for _, w := range r.Wanted {
			if !w.Admin && w.Use.Shape.Shared() {
				sum[w.Use.GPU] += w.Use.Share.MemoryBytes
			}
		}
	}
	return sum
}

// gpus returns the GPUs of the claim's devices, by name in ascending order.
func (r Record) gpus() []string { return gpuNames(r.Wanted) }

// touched returns the GPUs that are read or changed for the claim, by name in ascending order.
func (r Record) touched() []string {
	var touching []Wanted
	for _, w := range r.Wanted {
		if w.touches() {
			touching = append(touching, w)
		}
	}
	return gpuNames(touching)
}

// holds returns the GPUs of which the claim holds a device, by name in ascending order.
func (r Record) holds() []string {
	return gpuNames(slices.DeleteFunc(slices.Clone(r.Wanted), func(w Wanted) bool { return w.Admin }))
}

// Holds reports whether the claim holds a device of one of the GPUs, or may hold it until it is released. A claim that is being unprepared
// holds none: its containers have ended, and only what was created for it remains to be removed.
func (r Record) Holds(gpus []string) bool {
	return r.State != StateUnpreparing && slices.ContainsFunc(r.holds(), func(name string) bool { return slices.Contains(gpus, name) })
}

func gpuNames(wanted []Wanted) []string {
	var names []string
	for _, w := range wanted {
		names = append(names, w.Use.GPU)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// altersGPU reports whether the claim changes the GPU in a way that must be undone.
func (r Record) altersGPU(gpuName string) bool {
	return slices.ContainsFunc(r.on(gpuName), func(w Wanted) bool {
		return w.Use.Shape == gpu.MIG || w.Use.Shape == gpu.VFIO || w.Interval != "" || w.exclusive()
	})
}

// usesPassthrough reports whether the claim passes the GPU to a virtual machine.
func (r Record) usesPassthrough(gpuName string) bool {
	return slices.ContainsFunc(r.on(gpuName), func(w Wanted) bool { return w.Use.Shape == gpu.VFIO })
}

// created reports whether the MIG device was created for the claim. Before the claim is prepared, its record contains no MIG devices: then
// the placement decides, because it was free when the record was written. Afterwards, a MIG device with other ids at the placement is foreign. One that
// another program has created there again has the same ids and UUID, and cannot be distinguished.
func (r Record) created(i gpu.Instance) bool {
	if r.State == stateUnrecorded || !r.Owns(i.GPU, i.Placement) {
		return false
	}
	for _, known := range r.Instances {
		if known.GPU == i.GPU && known.Placement == i.Placement {
			return known.GI == i.GI && (known.UUID == i.UUID || known.UUID == "" || i.UUID == "")
		}
	}
	return true
}

// same reports whether both records are of the same allocated devices. Use and settings are not compared: those of a prepared claim are
// what they were when it was prepared, whatever a newer agent decodes.
func (r Record) same(other Record) bool {
	type identity struct {
		Result
		admin bool
	}
	known := map[identity]bool{}
	for _, w := range r.Wanted {
		known[identity{w.Result, w.Admin}] = true
	}
	return len(r.Wanted) == len(other.Wanted) && !slices.ContainsFunc(other.Wanted, func(w Wanted) bool {
		return !known[identity{w.Result, w.Admin}]
	})
}
