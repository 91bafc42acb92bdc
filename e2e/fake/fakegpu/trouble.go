package fakegpu

import "fmt"

// xidFallenOff is the XID of a GPU that has fallen off the bus.
const xidFallenOff = 79

// Values of Lost: the GPU has fallen off the bus, or it rejects every call until it is reset.
const (
	fallenOff     = 1
	resetRequired = 2
)

// Lose makes a GPU fall off the bus: it reports XID 79, every call for it returns NVML_ERROR_GPU_IS_LOST, a reset included, and its
// configuration space reads as all ones, until Reboot, Find, Heal or Reset. Another driver does not clear it.
func Lose(dir string, gpu int) error {
	if err := changePresence(dir, gpu, func(g *gpuState) { g.Lost = fallenOff }); err != nil {
		return err
	}
	return XID(dir, On(gpu), xidFallenOff)
}

// changePresence is changeGPU for changes that are visible on the bus.
func changePresence(dir string, gpu int, f func(*gpuState)) error {
	if err := changeGPU(dir, gpu, f); err != nil {
		return err
	}
	return showOnBus(dir)
}

// RequireReset makes every call for a GPU return NVML_ERROR_RESET_REQUIRED until the GPU is reset, its driver is loaded again, or a
// function that ends Lose is called. It reports no event.
func RequireReset(dir string, gpu int) error {
	return changeGPU(dir, gpu, func(g *gpuState) { g.Lost = resetRequired })
}

// Find makes a GPU of Lose or RequireReset respond again; nothing else changes.
func Find(dir string, gpu int) error {
	return changePresence(dir, gpu, func(g *gpuState) { g.Lost = 0 })
}

// LinkDown takes an NVLink of a GPU down.
func LinkDown(dir string, gpu, link int) error {
	return changeLink(dir, gpu, link, func(g *gpuState) { g.LinksDown |= 1 << link })
}

// LinkUp brings an NVLink of a GPU up again.
func LinkUp(dir string, gpu, link int) error {
	return changeLink(dir, gpu, link, func(g *gpuState) { g.LinksDown &^= 1 << link })
}

func changeLink(dir string, gpu, link int, f func(*gpuState)) error {
	if link < 0 || link >= maxNVLinks {
		return fmt.Errorf("change NVLink %d: must be 0 to %d", link, maxNVLinks-1)
	}
	return changeGPU(dir, gpu, f)
}

// RetirePages sets the number of memory pages, on a GPU before Ampere, that are pending retirement; a reset and a load of the driver
// retire them.
func RetirePages(dir string, gpu int, pending uint32) error {
	return changeGPU(dir, gpu, func(g *gpuState) { g.RetirePending = pending })
}

// Brake is a reason for which the hardware slows a GPU down (nvmlClocksEventReason).
type Brake uint64

// The hardware's reasons.
const (
	HeatBrake  Brake = 0x40
	PowerBrake Brake = 0x80
)

// SlowDown makes a GPU report that the hardware slows it down for the reasons; without reasons, that it does not. Its other sensors
// stay.
func SlowDown(dir string, gpu int, reasons ...Brake) error {
	return changeGPU(dir, gpu, func(g *gpuState) {
		g.Sensors.ClockReasons &^= uint64(HeatBrake | PowerBrake)
		for _, reason := range reasons {
			g.Sensors.ClockReasons |= uint64(reason)
		}
	})
}

// FabricState is the progress of a GPU in joining its NVLink fabric (nvmlGpuFabricState_t).
type FabricState uint32

// The states of a GPU in its fabric.
const (
	FabricNotStarted FabricState = 1
	FabricInProgress FabricState = 2
	FabricCompleted  FabricState = 3
)

// FabricReport is what a GPU reports about its NVLink fabric; the zero value is one that has joined and is healthy.
type FabricReport struct {
	State FabricState
	// Status is the nvmlReturn_t of joining, Health the bits of NVML_GPU_FABRIC_HEALTH_MASK, such as FabricRouteUnhealthy.
	Status, Health uint32
}

// Bits of FabricReport.Health (NVML_GPU_FABRIC_HEALTH_MASK).
const (
	FabricDegradedBandwidth uint32 = 1 << 0
	FabricRouteRecovery     uint32 = 1 << 2
	FabricRouteUnhealthy    uint32 = 1 << 4
	FabricAccessTimeout     uint32 = 1 << 6
)

// Fabric sets what a GPU reports about its NVLink fabric. A reset or another driver does not change it: the fabric manager owns it.
func Fabric(dir string, gpu int, r FabricReport) error {
	return withState(dir, func(s *session) error {
		if err := s.checkGPU(gpu); err != nil {
			return err
		}
		if s.state().Hardware.GPUs[gpu].Fabric == 0 {
			return fmt.Errorf("GPU %d has no NVLink fabric", gpu)
		}
		return s.change(func(l *live) error {
			g := &l.GPUs[gpu]
			g.FabricState, g.FabricStatus, g.FabricHealth = uint32(r.State), r.Status, r.Health
			return nil
		})
	})
}

// Heal clears all faults of one GPU: it responds, its links are up, its memory and its fabric are healthy, and nothing slows it down.
// Instances, modes, processes and the other sensors stay.
func Heal(dir string, gpu int) error {
	return changePresence(dir, gpu, func(g *gpuState) {
		cleared := well(*g)
		cleared.Sensors, cleared.Processes, cleared.ProcessCount = g.Sensors, g.Processes, g.ProcessCount
		cleared.Sensors.ClockReasons &^= uint64(HeatBrake | PowerBrake)
		*g = cleared
	})
}

// Reset clears all injections; instances and modes stay.
func Reset(dir string) error {
	err := changeLive(dir, func(l *live) error {
		l.Faults, l.FaultCount = [maxFaults]fault{}, 0
		l.CreateMS, l.DestroyMS, l.Stalls = 0, 0, 0
		for i := range l.GPUs {
			l.GPUs[i] = well(l.GPUs[i])
		}
		return nil
	})
	if err != nil {
		return err
	}
	return showOnBus(dir)
}

// well returns the GPU without all injections.
func well(g gpuState) gpuState {
	next := gpuState{
		MIG: g.MIG, PendingMIG: g.PendingMIG, TimeSlice: g.TimeSlice, ComputeMode: g.ComputeMode, Persistence: g.Persistence,
		Instances: g.Instances, Resets: g.Resets, Sensors: idle(),
	}
	for i := range next.Instances {
		next.Instances[i].ECCUncorrected = 0
	}
	return next
}
