package prepare

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// State is how far a claim has come.
type State string

// The states of a record. A claim without a record is not ours.
const (
	// StatePreparing is written, with the whole plan, before the first side effect.
	StatePreparing State = "Preparing"
	// StatePrepared is written after the last one: the claim's devices are usable.
	StatePrepared State = "Prepared"
	// StateUnpreparing is written before the first thing is taken away.
	StateUnpreparing State = "Unpreparing"
)

// The states of a claim that has no record on disk; they are never written.
const (
	// stateUnrecorded is a claim for which nothing was kept.
	stateUnrecorded State = ""
	// stateDamaged is a claim whose record was set aside: what lies at its placements was made for it.
	stateDamaged State = "Damaged"
)

// Record is what is kept on disk for one claim. It is enough to finish or undo the claim after a
// crash at any point, without the API server.
type Record struct {
	Ref
	State State
	// BootID is the boot in which the record was written. Hardware state of another boot is gone.
	BootID string
	// Wanted are the devices of the claim, in the order of its allocation.
	Wanted []Wanted
	// Instances are the MIG devices that were created and verified for the claim, in the order of
	// Wanted.
	Instances []gpu.Instance
}

// Owns reports whether the record says that the placement on the GPU is this claim's.
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

// holds returns the GPUs of which the claim holds something, by name in ascending order.
func (r Record) holds() []string {
	return gpuNames(slices.DeleteFunc(slices.Clone(r.Wanted), func(w Wanted) bool { return w.Admin }))
}

// Holds reports whether the claim holds something of one of the GPUs, or may until it was taken back. One that is on its way out
// does not: its containers have ended, and only what was made for it is still to be removed.
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

// altersGPU reports whether the claim changes the GPU in a way that has to be taken back.
func (r Record) altersGPU(gpuName string) bool {
	return slices.ContainsFunc(r.on(gpuName), func(w Wanted) bool {
		return w.Use.Shape == gpu.MIG || w.Use.Shape == gpu.VFIO || w.Interval != "" || w.exclusive()
	})
}

// usesPassthrough reports whether the claim gives the GPU to a virtual machine.
func (r Record) usesPassthrough(gpuName string) bool {
	return slices.ContainsFunc(r.on(gpuName), func(w Wanted) bool { return w.Use.Shape == gpu.VFIO })
}

// created reports whether the instance was made for the claim. The record of a claim that is not ready
// knows no instance yet: then the placement decides, because nothing lay there when the record was
// written. Once the instance is known, another one at its placement is somebody else's.
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

// same reports whether both records are of the same devices. What a device stands for and its
// settings are not compared: for a claim that is ready, those of the time when it was prepared count.
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
