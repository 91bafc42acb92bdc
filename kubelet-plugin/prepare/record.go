package prepare

import "github.com/tessera-gpu/tessera/api/gpu"

// State is how far a claim has come.
type State string

// The states of a record. A claim without a record is not ours.
const (
	// Preparing is written, with the whole plan, before the first side effect.
	Preparing State = "Preparing"
	// Ready is written after the last one: the claim's devices are usable.
	Ready State = "Prepared"
	// Unpreparing is written before the first thing is taken away.
	Unpreparing State = "Unpreparing"
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
	// Instances are the MIG devices that were created and verified for the claim, by GPU and
	// placement.
	Instances []gpu.Instance
}

// Owns reports whether the record says that the placement on the GPU is this claim's.
func (r Record) Owns(gpuName string, p gpu.Placement) bool {
	for _, w := range r.Wanted {
		if !w.Admin && w.Use.Shape == gpu.MIG && w.Use.GPU == gpuName && w.Use.Placement == p {
			return true
		}
	}
	return false
}
