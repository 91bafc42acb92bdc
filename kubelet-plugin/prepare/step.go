package prepare

import (
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Kind is what a step does.
type Kind int

// The kinds of steps. The first group makes a claim ready, the second takes it back.
const (
	// RecordPreparing writes the claim's record before the first side effect.
	RecordPreparing Kind = iota + 1
	// SetMode changes the MIG mode of a GPU on which nothing lives.
	SetMode
	// CreateInstance creates a GPU instance at its placement.
	CreateInstance
	// CompleteInstance creates the compute instance that spans the GPU instance.
	CompleteInstance
	// Verify reads the GPU again and compares it with what the claim was promised.
	Verify
	// SetTimeSlice sets the time-slice class of a GPU.
	SetTimeSlice
	// SetComputeMode sets who may use a GPU.
	SetComputeMode
	// EnsureDaemon makes an MPS daemon serve the claim.
	EnsureDaemon
	// BindPassthrough binds a GPU to vfio-pci.
	BindPassthrough
	// WriteSpec writes the claim's CDI spec.
	WriteSpec
	// RecordPrepared writes that the claim is usable.
	RecordPrepared

	// RecordUnpreparing writes that the claim is being taken back, before anything is.
	RecordUnpreparing
	// RemoveSpec removes the claim's CDI spec.
	RemoveSpec
	// ReleaseDaemon ends an MPS daemon that served nobody else.
	ReleaseDaemon
	// UnbindPassthrough gives a GPU back that a virtual machine had.
	UnbindPassthrough
	// DestroyInstance destroys a MIG device of the claim.
	DestroyInstance
	// RestoreMode turns MIG off after the last instance, where that needs no reset.
	RestoreMode
	// DeleteRecord forgets the claim, after everything it held is gone.
	DeleteRecord
)

var kindNames = [...]string{
	RecordPreparing:   "record-preparing",
	SetMode:           "set-mode",
	CreateInstance:    "create-instance",
	CompleteInstance:  "complete-instance",
	Verify:            "verify",
	SetTimeSlice:      "set-timeslice",
	SetComputeMode:    "set-compute-mode",
	EnsureDaemon:      "ensure-daemon",
	BindPassthrough:   "bind-vfio",
	WriteSpec:         "write-spec",
	RecordPrepared:    "record-prepared",
	RecordUnpreparing: "record-unpreparing",
	RemoveSpec:        "remove-spec",
	ReleaseDaemon:     "release-daemon",
	UnbindPassthrough: "unbind-vfio",
	DestroyInstance:   "destroy-instance",
	RestoreMode:       "restore-mode",
	DeleteRecord:      "delete-record",
}

// String returns the kind's name, one word.
func (k Kind) String() string {
	if k < RecordPreparing || k > DeleteRecord {
		return fmt.Sprintf("kind-%d", int(k))
	}
	return kindNames[k]
}

// Step is one thing to do for a claim. Steps are values: a plan can be printed, compared and counted
// before anything happens.
type Step struct {
	Kind Kind
	// GPU is the GPU's name; empty in the steps on the claim as a whole.
	GPU string
	// Placement is set in CreateInstance, CompleteInstance and DestroyInstance.
	Placement gpu.Placement
	// Mode is set in SetMode and RestoreMode.
	Mode gpu.Mode
	// Interval is set in SetTimeSlice.
	Interval string
	// Compute is set in SetComputeMode.
	Compute gpu.ComputeMode
	// Daemon is the daemon's name in EnsureDaemon and ReleaseDaemon.
	Daemon string
}

// String returns the step in one line, such as
// "create-instance gpu-0000-3b-00-0 profile 19 at slices 3-3".
func (s Step) String() string {
	text := s.Kind.String()
	if s.GPU != "" {
		text += " " + s.GPU
	}
	switch {
	case s.Placement != (gpu.Placement{}):
		text += " " + s.Placement.String()
	case s.Interval != "":
		text += " " + s.Interval
	case s.Daemon != "":
		text += " " + s.Daemon
	case s.Kind == SetComputeMode:
		text += " " + s.Compute.String()
	case s.Kind == SetMode || s.Kind == RestoreMode:
		text += " " + s.Mode.String()
	}
	return text
}

// When is a moment in the life of a step.
type When string

// The moments that an Observer is told about.
const (
	// Before is just before the step is performed.
	Before When = "before"
	// After is just after it succeeded.
	After When = "after"
)

// Observer is told about every step of every claim, in the order of each claim's plan, by the
// goroutine that performs it; calls for different claims come at the same time. It is for measuring,
// and for ending the process at a chosen step in tests of crash safety.
type Observer func(when When, claim Ref, step Step)
