package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Usage is how a claim is used that the API server does not have.
type Usage string

// The usages of a claim. The values are those of a metric's label.
const (
	// UsedByKubelet is a claim that kubelet has not unprepared.
	UsedByKubelet Usage = "kubelet"
	// UsedByProcess is a claim with a process on one of its devices.
	UsedByProcess Usage = "process"
	// UsageUnknown is a claim whose usage cannot be determined.
	UsageUnknown Usage = "unknown"
)

// Usages returns all usages.
func Usages() []Usage { return []Usage{UsedByKubelet, UsedByProcess, UsageUnknown} }

// InUse is why a claim is not released without a call of kubelet. It wraps gpu.ErrBusy and the cause.
type InUse struct {
	Usage Usage
	Cause error
}

// Error names what uses the claim.
func (e *InUse) Error() string { return "the claim is not released: " + e.Cause.Error() }

// Unwrap returns gpu.ErrBusy and the cause.
func (e *InUse) Unwrap() []error { return []error{gpu.ErrBusy, e.Cause} }

// countUsage returns the number of errors that wrap InUse, by usage.
func countUsage(errs []error) map[Usage]int {
	counts := map[Usage]int{}
	for _, err := range errs {
		var used *InUse
		if errors.As(err, &used) {
			counts[used.Usage]++
		}
	}
	return counts
}

// noProcesses is the Processes of a node whose processes cannot be listed.
type noProcesses struct{}

func (noProcesses) Processes(_ context.Context, gpuName string) ([]gpu.Process, error) {
	return nil, fmt.Errorf("list the processes on %s: %w", gpuName, gpu.ErrUnsupported)
}

// checkUnused returns InUse if the record's claim may have containers although the API server does not have it as recorded: a process is on one of its
// devices, or that cannot be determined. The caller holds the locks. A claim that kubelet has unprepared (StateUnpreparing) and a record of another boot
// have none.
func (p *Preparer) checkUnused(ctx context.Context, r Record) error {
	if r.State == StateUnpreparing || r.State == stateUnrecorded || r.BootID != p.BootID {
		return nil
	}
	own, err := p.daemonProcesses(r)
	if err != nil {
		return &InUse{UsageUnknown, err}
	}
	for _, name := range r.holds() {
		if r.usesPassthrough(name) {
			continue // Unbind fails while a virtual machine has the group open
		}
		if err := p.checkGPUUnused(ctx, r, name, own); err != nil {
			return err
		}
	}
	return nil
}

// checkGPUUnused returns InUse if a process other than those of the claim's daemons is on a device that the claim holds on the GPU.
func (p *Preparer) checkGPUUnused(ctx context.Context, r Record, gpuName string, own []int) error {
	processes, err := p.Processes.Processes(ctx, gpuName)
	if err != nil {
		return &InUse{UsageUnknown, fmt.Errorf("list the processes on %s: %w", gpuName, err)}
	}
	var instances []gpu.Instance
	if r.sliced(gpuName) {
		if instances, err = p.Instances.List(ctx, gpuName); err != nil {
			return &InUse{UsageUnknown, fmt.Errorf("read the instances of %s: %w", gpuName, err)}
		}
	}
	for _, process := range processes {
		if !slices.Contains(own, process.PID) && r.mayUse(gpuName, process, instances) {
			return &InUse{UsedByProcess, fmt.Errorf("process %d uses %s: end the process or its container", process.PID, gpuName)}
		}
	}
	return nil
}

// daemonProcesses returns the processes of the MPS daemons that serve the claim: they are on its devices also without clients.
func (p *Preparer) daemonProcesses(r Record) ([]int, error) {
	var all []int
	for _, name := range r.daemons() {
		pids, err := p.Daemons.Processes(name)
		if err != nil {
			return nil, fmt.Errorf("list the processes of MPS daemon %s: %w", name, err)
		}
		all = append(all, pids...)
	}
	return all, nil
}

// sliced reports whether all devices that the claim holds on the GPU are MIG devices.
func (r Record) sliced(gpuName string) bool {
	return !slices.ContainsFunc(r.on(gpuName), func(w Wanted) bool { return w.Use.Shape != gpu.MIG })
}

// mayUse reports whether the process is on a device that the claim holds on the GPU. Processes on MIG devices that were not created for the claim
// are not. On a shared GPU, NVML does not report to which claim a process belongs.
func (r Record) mayUse(gpuName string, process gpu.Process, instances []gpu.Instance) bool {
	if !r.sliced(gpuName) || process.GI == gpu.NoInstance {
		return true
	}
	i := slices.IndexFunc(instances, func(i gpu.Instance) bool { return i.GI == process.GI })
	return i < 0 || r.created(instances[i])
}
