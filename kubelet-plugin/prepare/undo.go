package prepare

import (
	"errors"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// planUndo returns the remaining steps that release the record's claim, in order. It is pure. If a GPU is lost, the record is kept: the rest is
// released when the GPU responds again, or dropped after a reboot. The error is that of a GPU that could not be read.
func planUndo(r Record, v view) ([]Step, error) {
	var steps []Step
	if r.State != StateUnpreparing {
		steps = append(steps, Step{Kind: RecordUnpreparing})
	}
	steps = append(steps, Step{Kind: RemoveSpec})
	for _, name := range r.daemons() {
		switch {
		case !servesActiveClaim(v.others, name):
			steps = append(steps, Step{Kind: ReleaseDaemon, Daemon: name})
		case v.on(r.gpuOf(name)).unread == nil:
			steps = append(steps, Step{Kind: NarrowDaemon, Daemon: name})
		}
	}
	for _, g := range v.gpus {
		switch {
		case g.unread == nil:
			steps = append(steps, planUndoGPU(r, v, g)...)
		case !errors.Is(g.unread, gpu.ErrLost):
			return nil, g.unread
		}
	}
	if v.lostGPUError(r) == nil {
		steps = append(steps, Step{Kind: DeleteRecord})
	}
	return steps, nil
}

// planUndoGPU returns the steps that release the claim's devices on one GPU. Only MIG devices that were created for the claim are destroyed.
func planUndoGPU(r Record, v view, g reading) []Step {
	steps := planUndoSharing(r, v, g)
	if r.usesPassthrough(g.name) {
		steps = append(steps, Step{Kind: UnbindPassthrough, GPU: g.name})
	}
	carved, remaining := false, len(g.Instances)
	for _, w := range r.on(g.name) {
		if w.Use.Shape != gpu.MIG {
			continue
		}
		carved = true
		if there, exists := g.at(w.Use.Placement); exists && r.created(there) {
			steps = append(steps, Step{Kind: DestroyInstance, GPU: g.name, Placement: w.Use.Placement})
			remaining--
		}
	}
	if carved && remaining == 0 && g.TogglesMIG() && g.Mode == gpu.ModeEnabled && !needsMIG(v.others, g.name) {
		steps = append(steps, Step{Kind: RestoreMode, GPU: g.name, Mode: gpu.ModeDisabled})
	}
	return steps
}

// planUndoSharing returns the steps that restore time slice and compute mode of a GPU, if no other claim needs them. While MIG is enabled, the
// claim never changed them, and they cannot be set.
func planUndoSharing(r Record, v view, g reading) []Step {
	if g.Mode == gpu.ModeEnabled {
		return nil
	}
	var steps []Step
	others := activeRecords(v.others)
	if r.interval(g.name) != "" && interval(others, g.name) == "" {
		steps = append(steps, Step{Kind: SetTimeSlice, GPU: g.name, Interval: defaultTimeSlice})
	}
	if r.exclusive(g.name) && !slices.ContainsFunc(others, func(o Record) bool { return o.exclusive(g.name) }) {
		steps = append(steps, Step{Kind: SetComputeMode, GPU: g.name, Compute: gpu.ComputeDefault})
	}
	return steps
}

// needsMIG reports whether a record has a MIG device on the GPU, whether it exists or not.
func needsMIG(records []Record, gpuName string) bool {
	for _, r := range records {
		for _, w := range r.on(gpuName) {
			if w.Use.Shape == gpu.MIG {
				return true
			}
		}
	}
	return false
}
