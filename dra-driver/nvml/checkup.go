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

// Check looks at the health of one GPU; it is called once a second for each. What the GPU, the driver or the MIG mode does not offer, and
// what could not be read, is no condition. A look that succeeds says that the GPU is not lost. An error wraps gpu.ErrLost when the GPU
// does not answer, which is also when every question fails, and gpu.ErrNoDriver when no GPU can be asked; the checkup is empty then.
//
// In MIG mode all is well with NVLinks and the fabric, which nobody can use there and of which some GPUs take the links down, and
// memory errors are told of the MIG devices that have any, because the driver knows them by MIG device only.
//
// The connection is held for one question at a time, as in Measure.
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
	if carved {
		c.Conditions = append(c.Conditions, p.migMemoryErrors(ctx, c.Conditions)...)
	} else {
		c.Conditions = append(c.Conditions, p.conditions(ctx, known.linkConditions)...)
		c.Conditions = append(c.Conditions, p.conditions(ctx, known.fabricConditions)...)
	}
	switch failed := errors.Join(p.errs...); {
	case p.ended:
		return gpu.Checkup{GPU: gpuName, At: c.At}, failed
	case failed != nil && len(c.Conditions) == 0:
		return gpu.Checkup{GPU: gpuName, At: c.At}, fmt.Errorf("%w: %w", gpu.ErrLost, failed)
	case failed != nil:
		klog.FromContext(ctx).V(2).Info("GPU does not report all of its health", "gpu", gpuName, "err", failed)
	}
	c.UUID = known.gpu.UUID
	c.Conditions = append(c.Conditions, gpu.Condition{Signal: gpu.SignalLost})
	if carved { // nobody uses the fabric and its links through MIG devices: faults of them from before end
		c.Conditions = append(c.Conditions, gpu.Condition{Signal: gpu.SignalFabric}, gpu.Condition{Signal: gpu.SignalNVLink, Links: gpu.LinksUnused})
	}
	return c, nil
}

// Present reports whether one of NVIDIA's devices is in the GPU's place on the PCI bus, driver or not. In doubt one is.
func (s *Session) Present(gpuName string) bool { return s.sysfs.present(gpuName) }

// conditions puts one question; nothing is the answer when it fails.
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

// slowdownConditions asks what slows the clocks down.
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

// memoryErrorConditions asks for the memory errors of the whole GPU that were not corrected.
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

// migMemoryErrors asks the MIG devices, unless the GPU has answered for all of them. Only one with errors is told of: without any
// nothing follows, and to find out where a MIG device lies takes calls.
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
				return nil // destroyed meanwhile
			}
			return []gpu.Condition{memoryErrors(count, p.gpu.placement(gi))}
		})...)
	}
	return found
}
