package prepare

import (
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// planPrepare returns the remaining steps until the claim of the record is prepared, in order, or the error why it cannot be in this state.
// Steps that the view shows as completed are left out, so that planning again after a crash continues where the crash was. It is pure.
func planPrepare(r Record, v view) ([]Step, error) {
	for _, g := range v.gpus {
		if g.unread != nil {
			return nil, g.unread
		}
	}
	if r.State == StatePrepared {
		return slices.Concat(verifySteps(r, v), daemonSteps(r), []Step{{Kind: WriteSpec}}), nil
	}
	for _, g := range v.gpus {
		if err := admitDevices(r, v, g); err != nil {
			return nil, err
		}
	}
	if r.State == stateDamaged && instancesExist(r, v) {
		// The claim probably was prepared and its pods may run. Nothing is created, so that no failure can lead to an undo.
		return slices.Concat(verifySteps(r, v), daemonSteps(r), []Step{{Kind: WriteSpec}, {Kind: RecordPrepared}}), nil
	}
	var steps []Step
	if r.State != StatePreparing {
		steps = append(steps, Step{Kind: RecordPreparing})
	}
	for _, g := range v.gpus {
		carved, err := planGPU(r, g)
		if err != nil {
			return nil, err
		}
		steps = append(steps, carved...)
	}
	return slices.Concat(steps, daemonSteps(r), []Step{{Kind: WriteSpec}, {Kind: RecordPrepared}}), nil
}

// instancesExist reports whether every MIG device of the claim exists and is complete.
func instancesExist(r Record, v view) bool {
	for _, g := range v.gpus {
		for _, w := range r.on(g.name) {
			there, found := g.at(w.Use.Placement)
			if w.Use.Shape == gpu.MIG && (!found || there.CI == gpu.NoCompute) {
				return false
			}
		}
	}
	return true
}

// verifySteps returns the steps that compare the hardware with the record of a prepared claim.
func verifySteps(r Record, v view) []Step {
	var steps []Step
	for _, g := range v.gpus {
		steps = append(steps, verifyStep(r, g)...)
		steps = append(steps, bindStep(r, g)...)
	}
	return steps
}

// bindStep returns the step that binds the GPU to vfio-pci for a virtual machine. The step is idempotent and also determines the IOMMU group,
// which is needed each time.
func bindStep(r Record, g reading) []Step {
	if !r.usesPassthrough(g.name) {
		return nil
	}
	return []Step{{Kind: BindPassthrough, GPU: g.name}}
}

// planGPU returns the steps that create the claim's devices on one GPU.
func planGPU(r Record, g reading) ([]Step, error) {
	steps, err := modeSteps(r, g)
	if err != nil {
		return nil, err
	}
	for _, w := range r.on(g.name) {
		if w.Use.Shape != gpu.MIG {
			continue
		}
		there, exists := g.at(w.Use.Placement)
		if !exists {
			steps = append(steps, Step{Kind: CreateInstance, GPU: g.name, Placement: w.Use.Placement})
		}
		if !exists || there.CI == gpu.NoCompute {
			steps = append(steps, Step{Kind: CompleteInstance, GPU: g.name, Placement: w.Use.Placement})
		}
	}
	steps = append(steps, verifyStep(r, g)...)
	return slices.Concat(steps, sharingSteps(r, g), bindStep(r, g)), nil
}

// sharingSteps returns the steps that set how the containers of a GPU share it.
func sharingSteps(r Record, g reading) []Step {
	var steps []Step
	if interval := r.interval(g.name); interval != "" {
		steps = append(steps, Step{Kind: SetTimeSlice, GPU: g.name, Interval: interval})
	}
	if r.exclusive(g.name) {
		steps = append(steps, Step{Kind: SetComputeMode, GPU: g.name, Compute: gpu.ComputeExclusive})
	}
	return steps
}

// daemonSteps returns the steps after which MPS daemons serve the claim's devices.
func daemonSteps(r Record) []Step {
	var steps []Step
	for _, name := range r.daemons() {
		steps = append(steps, Step{Kind: EnsureDaemon, Daemon: name})
	}
	return steps
}

// modeSteps returns the step that sets the MIG mode that the claim needs, if the GPU has another one. Before Hopper that needs a reset, and
// is an error.
func modeSteps(r Record, g reading) ([]Step, error) {
	held := r.on(g.name)
	if len(held) == 0 || g.Geometry == nil {
		return nil, nil
	}
	need := gpu.ModeDisabled
	if held[0].Use.Shape == gpu.MIG {
		need = gpu.ModeEnabled
	}
	switch {
	case g.Mode == need:
		return nil, nil
	case !g.TogglesMIG():
		return nil, fmt.Errorf("device %s: MIG is %v on %s (%s) and changes only with a reset of the GPU: %w",
			held[0].Device, g.Mode, g.name, g.Product, gpu.ErrUnsupported)
	}
	return []Step{{Kind: SetMode, GPU: g.name, Mode: need}}, nil
}

// verifyStep returns the step that verifies the claim's devices on the GPU, unless the claim only monitors it.
func verifyStep(r Record, g reading) []Step {
	if !slices.Contains(r.touched(), g.name) {
		return nil
	}
	return []Step{{Kind: Verify, GPU: g.name}}
}
