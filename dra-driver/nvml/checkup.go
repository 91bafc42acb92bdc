package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Check reads the health of one GPU; it is called once a second for each GPU. What the GPU, the driver or the MIG mode
// does not support, and what could not be read, has no condition. A check that succeeds includes that the GPU is not
// lost. The error wraps gpu.ErrLost if the GPU does not respond or every query fails, and gpu.ErrNoDriver if there is no
// driver; the checkup is empty then.
//
// In MIG mode the conditions of NVLinks and the fabric are reported as absent: MIG devices cannot use them, and some
// GPUs take the links down. Memory errors are reported for the MIG devices that have any, because the driver counts them
// by MIG device only.
//
// The connection is held for one query at a time, as in Measure.
func (s *Session) Check(ctx context.Context, gpuName string) (gpu.Checkup, error) {
	c := gpu.Checkup{GPU: gpuName, At: time.Now()}
	known, err := withGPU(ctx, s, gpuName, func(f *gpuInfo) (*gpuInfo, error) { return f, nil })
	if err != nil {
		return c, err
	}
	p := &probe{session: s, gpu: known}
	carved := p.migEnabled(ctx)
	c.Conditions = append(c.Conditions, p.conditions(ctx, known.slowdownConditions)...)
	c.Conditions = append(c.Conditions, p.conditions(ctx, known.memoryErrorConditions)...)
	c.Conditions = append(c.Conditions, p.conditions(ctx, known.rowConditions)...)
	c.Conditions = append(c.Conditions, p.conditions(ctx, known.recoveryConditions)...)
	if carved {
		c.Conditions = append(c.Conditions, p.migMemoryErrors(ctx, c.Conditions)...)
	} else {
		c.Conditions = append(c.Conditions, p.conditions(ctx, known.linkConditions)...)
		c.Conditions = append(c.Conditions, p.conditions(ctx, func(a *calls) []gpu.Condition { return known.fabricConditions(a, &s.joined) })...)
	}
	switch failed := errors.Join(p.errs...); {
	case p.ended:
		return gpu.Checkup{GPU: gpuName, At: c.At}, failed
	case failed != nil && len(c.Conditions) == 0:
		return gpu.Checkup{GPU: gpuName, At: c.At}, fmt.Errorf("%w: %w", gpu.ErrLost, failed)
	case failed != nil:
		klog.FromContext(ctx).V(2).Info("Health of the GPU was read incompletely", "gpu", gpuName, "err", failed)
	}
	c.UUID = known.gpu.UUID
	c.Conditions = append(c.Conditions, gpu.Condition{Signal: gpu.SignalLost})
	if carved { // MIG devices cannot use the fabric and its links: this ends earlier faults of them
		c.Conditions = append(c.Conditions, gpu.Condition{Signal: gpu.SignalFabric}, gpu.Condition{Signal: gpu.SignalNVLink, Links: gpu.LinksUnused})
	}
	return c, nil
}

// Present reports whether an NVIDIA device is at the GPU's address on the PCI bus, with or without a driver. It returns
// true if the bus cannot be read.
func (s *Session) Present(gpuName string) bool { return s.sysfs.present(gpuName) }

// conditions makes one query; it returns nil if the query fails.
func (p *probe) conditions(ctx context.Context, question func(*calls) []gpu.Condition) []gpu.Condition {
	var found []gpu.Condition
	p.withConnection(ctx, func() error {
		var a calls
		found = question(&a)
		if a.err != nil {
			found = nil
		}
		return a.err
	})
	return found
}

// slowdownConditions reads the hardware slowdowns of the clocks: heat and power.
func (f *gpuInfo) slowdownConditions(a *calls) []gpu.Condition {
	reasons, has := querySensor(a, "nvmlDeviceGetCurrentClocksEventReasons", func() (uint64, nvml.Return) { return clockReasons(f.handle) })
	if !has {
		return nil
	}
	return []gpu.Condition{
		{Signal: gpu.SignalHeat, Present: reasons&nvml.ClocksThrottleReasonHwThermalSlowdown != 0},
		{Signal: gpu.SignalPower, Present: reasons&nvml.ClocksThrottleReasonHwPowerBrakeSlowdown != 0},
	}
}

// memoryErrorConditions reads the uncorrected memory errors of the whole GPU.
func (f *gpuInfo) memoryErrorConditions(a *calls) []gpu.Condition {
	count, has := uncorrected(a, f.handle)
	if !has {
		return nil
	}
	return []gpu.Condition{memoryErrors(count, gpu.Placement{})}
}

func uncorrected(a *calls, d nvml.Device) (uint64, bool) {
	return querySensor(a, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
}

func memoryErrors(count uint64, of gpu.Placement) gpu.Condition {
	c := gpu.Condition{Signal: gpu.SignalECC, Placement: of, Present: count > 0}
	if c.Present {
		c.Detail = fmt.Sprintf("%d since the driver was loaded or the GPU reset", count)
	}
	return c
}

// migMemoryErrors reads the uncorrected memory errors of the MIG devices, unless the GPU has reported a number for all
// of them. Only MIG devices with errors have a condition: its absence is not needed for the others, and finding the
// placement of a MIG device takes calls.
func (p *probe) migMemoryErrors(ctx context.Context, known []gpu.Condition) []gpu.Condition {
	for _, c := range known {
		if c.Signal == gpu.SignalECC {
			return nil
		}
	}
	var found []gpu.Condition
	for _, mig := range p.migDevices(ctx) {
		found = append(found, p.conditions(ctx, func(a *calls) []gpu.Condition {
			count, has := uncorrected(a, mig)
			if !has || count == 0 {
				return nil
			}
			gi, has := querySensor(a, "nvmlDeviceGetGpuInstanceId", mig.GetGpuInstanceId)
			if !has {
				return nil // destroyed in the meantime
			}
			return []gpu.Condition{memoryErrors(count, p.gpu.placement(gi))}
		})...)
	}
	return found
}
