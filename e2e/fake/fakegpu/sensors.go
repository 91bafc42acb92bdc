package fakegpu

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// Readings are the values of a GPU's sensors and counters.
type Readings struct {
	// GPUUtilization and the others are percent.
	GPUUtilization, MemoryUtilization      uint32
	EncoderUtilization, DecoderUtilization uint32
	// Temperature is in degrees Celsius, Power in milliwatts, Energy, since the driver was loaded, in
	// millijoules.
	Temperature, Power uint32
	Energy             uint64
	// SMClock and MemoryClock are in MHz; ClockReasons are the nvmlClocksEventReason bits.
	SMClock, MemoryClock uint32
	ClockReasons         uint64
	// RetiredSingleBit and RetiredDoubleBit count the retired pages, on GPUs before Ampere.
	RetiredSingleBit, RetiredDoubleBit uint32
}

// Idle are the readings of an idle GPU, and of every GPU until Sense.
func Idle() Readings {
	const clocksIdle = 1 // nvmlClocksEventReasonGpuIdle
	return Readings{Temperature: 30, Power: 70_000, SMClock: 345, MemoryClock: 1593, ClockReasons: clocksIdle}
}

func idle() sensors { return Idle().sensors() }

func (r Readings) sensors() sensors {
	return sensors{
		EnergyMJ: r.Energy, ClockReasons: r.ClockReasons,
		GPUUse: r.GPUUtilization, MemoryUse: r.MemoryUtilization, EncoderUse: r.EncoderUtilization, DecoderUse: r.DecoderUtilization,
		Celsius: r.Temperature, MilliWatt: r.Power, ClockSM: r.SMClock, ClockMemory: r.MemoryClock,
		RetiredSingle: r.RetiredSingleBit, RetiredMultiple: r.RetiredDoubleBit,
	}
}

// Sense sets the readings of a GPU. Values stay constant: no energy is used and no GPU warms up. A
// restart of the machine or the driver, and Reset, restore Idle.
func Sense(dir string, gpu int, r Readings) error {
	for _, percent := range []uint32{r.GPUUtilization, r.MemoryUtilization, r.EncoderUtilization, r.DecoderUtilization} {
		if percent > 100 {
			return fmt.Errorf("utilization of %d %%: must be 0 to 100", percent)
		}
	}
	return changeGPU(dir, gpu, func(g *gpuState) { g.Sensors = r.sensors() })
}

// CountLinkErrors adds to the corrupted flow control digits that an NVLink has received.
func CountLinkErrors(dir string, gpu, link int, count uint64) error {
	if link < 0 || link >= maxNVLinks {
		return fmt.Errorf("count errors of NVLink %d: must be 0 to %d", link, maxNVLinks-1)
	}
	return changeGPU(dir, gpu, func(g *gpuState) { g.LinkErrors[link] += count })
}

// StartProcess adds a process at a place with that many bytes of device memory to what NVML reports;
// it holds no resources. For a process that is there already the memory is changed. Only callers of NVML in the
// caller's PID namespace see the process.
func StartProcess(dir string, at Place, pid uint32, bytes uint64) error {
	namespace, err := pidNamespace()
	if err != nil {
		return fmt.Errorf("start process %d: %w", pid, err)
	}
	p := process{Bytes: bytes, PID: pid, Instance: uint32(at.Instance), Compute: uint32(at.Compute), Namespace: namespace}
	return changeProcesses(dir, at.GPU, func(g *gpuState) error {
		list := g.Processes[:g.ProcessCount]
		if i := slices.IndexFunc(list, p.same); i >= 0 {
			list[i] = p
			return nil
		}
		if g.ProcessCount == maxProcesses {
			return fmt.Errorf("more than %d processes", maxProcesses)
		}
		g.Processes[g.ProcessCount] = p
		g.ProcessCount++
		return nil
	})
}

// pidNamespace returns the inode of this process's PID namespace, which the kernel numbers with 32 bits.
func pidNamespace() (uint32, error) {
	var own syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/pid", &own); err != nil {
		return 0, fmt.Errorf("read the PID namespace: %w", err)
	}
	return uint32(own.Ino), nil //nolint:gosec // proc_alloc_inum returns an unsigned int
}

// EndProcess removes a process from the GPU.
func EndProcess(dir string, at Place, pid uint32) error {
	p := process{PID: pid, Instance: uint32(at.Instance), Compute: uint32(at.Compute)}
	return changeProcesses(dir, at.GPU, func(g *gpuState) error {
		list := g.Processes[:g.ProcessCount]
		left := slices.DeleteFunc(list, p.same)
		if len(left) == len(list) {
			return errors.New("no such process")
		}
		g.ProcessCount = uint32(len(left))
		return nil
	})
}

// same reports whether it is the same process at the same place.
func (p process) same(q process) bool {
	return p.PID == q.PID && p.Instance == q.Instance && p.Compute == q.Compute
}

func changeProcesses(dir string, gpu int, f func(*gpuState) error) error {
	return withState(dir, func(s *session) error {
		if err := s.checkGPU(gpu); err != nil {
			return err
		}
		if err := s.change(func(l *live) error { return f(&l.GPUs[gpu]) }); err != nil {
			return fmt.Errorf("change the processes of GPU %d: %w", gpu, err)
		}
		return nil
	})
}
