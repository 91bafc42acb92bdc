package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// setMode sets the MIG mode. Disabling MIG destroys idle MIG devices, so the GPU is checked again for any.
func (x *execution) setMode(ctx context.Context, s Step) error {
	if s.Mode == gpu.ModeDisabled {
		there, err := x.Instances.List(ctx, s.GPU)
		if err != nil {
			return fmt.Errorf("read the instances of %s: %w", s.GPU, err)
		}
		if len(there) > 0 {
			return fmt.Errorf("disable MIG on %s: %w", s.GPU, &ForeignInstance{Instance: there[0]})
		}
	}
	if err := x.Modes.SetMode(ctx, s.GPU, s.Mode); err != nil {
		return fmt.Errorf("set the MIG mode of %s to %v: %w", s.GPU, s.Mode, err)
	}
	return nil
}

// changeMode sets the MIG mode that the claim needs. While a program has the GPU open, the driver refuses: what Monitoring can remove is removed.
func (x *execution) changeMode(ctx context.Context, s Step) error {
	for {
		err := x.setMode(ctx, s)
		if err == nil {
			x.Monitoring.Done(s.GPU)
		}
		if !errors.Is(err, gpu.ErrBusy) {
			return err
		}
		if err := x.Monitoring.Retry(ctx, s.GPU, err); err != nil {
			return err
		}
	}
}

// restoreMode disables MIG, best effort. It removes no program for that: MIG stays enabled while a monitoring program has the GPU open, which is only
// logged, and the next claim for the whole GPU disables it.
func (x *execution) restoreMode(ctx context.Context, s Step) error {
	if err := x.setMode(ctx, s); err != nil {
		klog.FromContext(ctx).V(2).Info("MIG stays enabled", "gpu", s.GPU, "reason", err.Error())
	}
	return nil
}

func (x *execution) createInstance(ctx context.Context, s Step) error {
	at := place{s.GPU, s.Placement}
	instance, err := x.Instances.Create(ctx, s.GPU, s.Placement)
	if err != nil {
		// A MIG device may exist nevertheless. If the memory slices were occupied it is not the claim's, and a rollback must not destroy it.
		x.begun[at] = !errors.Is(err, gpu.ErrOccupied)
		return fmt.Errorf("create %v on %s: %w", s.Placement, s.GPU, err)
	}
	x.live[at] = instance
	return nil
}

func (x *execution) completeInstance(ctx context.Context, s Step) error {
	at := place{s.GPU, s.Placement}
	instance, err := x.Instances.Complete(ctx, x.live[at])
	if err != nil {
		return fmt.Errorf("complete %v on %s: %w", s.Placement, s.GPU, err)
	}
	x.live[at] = instance
	return nil
}

func (x *execution) destroyInstance(ctx context.Context, s Step) error {
	instance := x.live[place{s.GPU, s.Placement}]
	err := x.Instances.Destroy(ctx, instance)
	switch {
	case err == nil:
		x.Monitoring.Destroyed(s.GPU)
		return nil
	case errors.Is(err, gpu.ErrBusy) && x.unused(ctx, instance):
		err = x.Monitoring.Pinned(s.GPU, err)
	}
	return fmt.Errorf("destroy %v: %w", instance, err)
}

// unused reports whether no process has a context on the MIG device.
func (x *execution) unused(ctx context.Context, i gpu.Instance) bool {
	processes, err := x.Processes.Processes(ctx, i.GPU)
	return err == nil && !slices.ContainsFunc(processes, func(p gpu.Process) bool { return p.GI == i.GI })
}

// setTimeSlice sets the time-slice class. A GPU without time slices has the default.
func (x *execution) setTimeSlice(ctx context.Context, s Step) error {
	err := x.TimeSlice.Set(ctx, x.view.on(s.GPU).UUID, s.Interval)
	if err != nil && (s.Interval != defaultTimeSlice || !errors.Is(err, gpu.ErrUnsupported)) {
		return fmt.Errorf("set the time slice of %s to %s: %w", s.GPU, s.Interval, err)
	}
	return nil
}

func (x *execution) setComputeMode(ctx context.Context, s Step) error {
	if err := x.Modes.SetComputeMode(ctx, s.GPU, s.Compute); err != nil {
		return fmt.Errorf("set the compute mode of %s to %v: %w", s.GPU, s.Compute, err)
	}
	return nil
}

func (x *execution) ensureDaemon(ctx context.Context, s Step) error {
	folders, err := x.Daemons.Ensure(ctx, x.daemon(s.Daemon, append(activeRecords(x.view.others), x.record)))
	if err != nil {
		return &DaemonFailed{Name: s.Daemon, Cause: err}
	}
	x.clients[s.Daemon] = folders
	return nil
}

// narrowDaemon removes the claim from the configuration of a daemon that serves others.
func (x *execution) narrowDaemon(ctx context.Context, s Step) error {
	if err := x.Daemons.Narrow(ctx, x.daemon(s.Daemon, activeRecords(x.view.others))); err != nil {
		return fmt.Errorf("remove the claim from MPS daemon %s: %w", s.Daemon, err)
	}
	return nil
}

func (x *execution) releaseDaemon(ctx context.Context, s Step) error {
	if err := x.Daemons.Release(ctx, s.Daemon); err != nil {
		return fmt.Errorf("stop MPS daemon %s: %w", s.Daemon, err)
	}
	return nil
}

func (x *execution) bindPassthrough(ctx context.Context, s Step) error {
	group, err := x.Passthrough.Bind(ctx, s.GPU)
	if err != nil {
		return fmt.Errorf("bind %s for a virtual machine: %w", s.GPU, err)
	}
	x.groups[s.GPU] = group
	return nil
}

func (x *execution) unbindPassthrough(ctx context.Context, s Step) error {
	if err := x.Passthrough.Unbind(ctx, s.GPU); err != nil {
		return fmt.Errorf("unbind %s from a virtual machine: %w", s.GPU, err)
	}
	return nil
}

// verify reads the GPU again and compares it with the record.
func (x *execution) verify(ctx context.Context, s Step) error {
	found := x.readGPU(ctx, x.view.on(s.GPU))
	if found.unread != nil {
		return found.unread
	}
	x.view.replace(found)
	for _, w := range x.record.Wanted {
		if w.Use.GPU != s.GPU || !w.touches() {
			continue
		}
		if err := x.verifyDevice(w, found); err != nil {
			return fmt.Errorf("device %s: %w", w.Device, err)
		}
	}
	return nil
}

func (x *execution) verifyDevice(w Wanted, found reading) error {
	if w.Use.Shape != gpu.MIG {
		if found.Mode == gpu.ModeEnabled {
			return fmt.Errorf("MIG was enabled on %s: it cannot be used as a whole", found.name)
		}
		return nil
	}
	instance, exists := found.at(w.Use.Placement)
	if !exists {
		return fmt.Errorf("%s has no instance of %v", found.name, w.Use.Placement)
	}
	at := place{w.Use.GPU, w.Use.Placement}
	if made, known := x.live[at]; !w.Admin && (!known || made.GI != instance.GI || !x.record.created(instance)) {
		return fmt.Errorf("%v (%s) is not the MIG device of the claim, which another program destroyed", instance, instance.UUID)
	}
	x.live[at] = instance
	profile, err := found.Geometry.Legal(w.Use.Placement)
	if err != nil {
		return err
	}
	return instance.Verify(profile, w.Use.Placement)
}
