package prepare

import (
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Kind is the kind of a step.
type Kind int

// The kinds of steps. The first group prepares a claim, the second releases it.
const (
	// RecordPreparing writes the claim's record before the first side effect.
	RecordPreparing Kind = iota + 1
	// SetMode sets the MIG mode of an idle GPU.
	SetMode
	// CreateInstance creates a GPU instance at its placement.
	CreateInstance
	// CompleteInstance creates the compute instance that spans the GPU instance.
	CompleteInstance
	// Verify reads the GPU again and compares it with the record.
	Verify
	// SetTimeSlice sets the time slice of a GPU.
	SetTimeSlice
	// SetComputeMode sets which processes may use a GPU.
	SetComputeMode
	// EnsureDaemon starts or updates the MPS daemon that serves the claim.
	EnsureDaemon
	// BindPassthrough binds a GPU to vfio-pci.
	BindPassthrough
	// WriteSpec writes the claim's CDI spec.
	WriteSpec
	// RecordPrepared writes the record of the prepared claim.
	RecordPrepared

	// RecordUnpreparing writes the record before anything is released.
	RecordUnpreparing
	// RemoveSpec removes the claim's CDI spec.
	RemoveSpec
	// NarrowDaemon removes the claim from an MPS daemon that serves others.
	NarrowDaemon
	// ReleaseDaemon stops an MPS daemon that serves no other claim.
	ReleaseDaemon
	// UnbindPassthrough unbinds a GPU from vfio-pci.
	UnbindPassthrough
	// DestroyInstance destroys a MIG device of the claim.
	DestroyInstance
	// RestoreMode disables MIG after the last MIG device, if that needs no reset.
	RestoreMode
	// DeleteRecord deletes the record, after everything that the claim held was released.
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
	NarrowDaemon:      "narrow-daemon",
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

// Step is one idempotent change for a claim. Steps are values, so that a plan can be logged and compared before it is performed.
type Step struct {
	Kind Kind
	// GPU is the GPU's name; empty in steps that concern the whole claim.
	GPU string
	// Placement is set in CreateInstance, CompleteInstance and DestroyInstance.
	Placement gpu.Placement
	// Mode is set in SetMode and RestoreMode.
	Mode gpu.Mode
	// Interval is set in SetTimeSlice.
	Interval string
	// Compute is set in SetComputeMode.
	Compute gpu.ComputeMode
	// Daemon is the daemon's name in EnsureDaemon, NarrowDaemon and ReleaseDaemon.
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

// When is when an Observer is called.
type When string

// The times at which an Observer is called.
const (
	// Before is just before the step is performed.
	Before When = "before"
	// After is just after it succeeded.
	After When = "after"
)

// Observer is called before and after each step of each claim, in the order of the claim's plan, by the goroutine that performs it; calls for
// different claims are concurrent. It is for metrics, and for tests that end the process at a chosen step.
type Observer func(when When, claim Ref, step Step)
