package fakegpu

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Whole is the instance or compute instance of an event that concerns the whole GPU.
const Whole = -1

// Place is the location of an event on a machine: a GPU by index, and on it a GPU instance and a compute instance by id, or
// Whole.
type Place struct {
	GPU, Instance, Compute int
}

// On is the place of a whole GPU.
func On(gpu int) Place { return Place{GPU: gpu, Instance: Whole, Compute: Whole} }

// Event bits of NVML (nvmlEventType*).
const (
	eventSingleBitECC = 0x1
	eventDoubleBitECC = 0x2
	eventXID          = 0x8
)

// XID reports an XID error.
func XID(dir string, at Place, code int) error {
	return post(dir, at, eventXID, uint64(code))
}

// ECC counts memory errors of a whole GPU and reports them. In MIG mode NVML then reports only the lifetime counts; see
// InstanceECC.
func ECC(dir string, gpu int, corrected, uncorrected uint64) error {
	err := changeGPU(dir, gpu, func(g *gpuState) {
		g.ECCCorrected += corrected
		g.ECCUncorrected += uncorrected
		g.LifetimeECCCorrected += corrected
		g.LifetimeECCUncorrected += uncorrected
	})
	if err == nil && corrected > 0 {
		err = post(dir, On(gpu), eventSingleBitECC, 0)
	}
	if err == nil && uncorrected > 0 {
		err = post(dir, On(gpu), eventDoubleBitECC, 0)
	}
	return err
}

// InstanceECC counts memory errors of a GPU instance that were not corrected and reports them.
func InstanceECC(dir string, at Place, uncorrected uint64) error {
	err := withState(dir, func(s *session) error {
		if err := s.checkGPU(at.GPU); err != nil {
			return err
		}
		return s.change(func(l *live) error {
			g := &l.GPUs[at.GPU]
			if at.Instance < 0 || at.Instance >= maxInstances || g.Instances[at.Instance].Used == 0 {
				return fmt.Errorf("count memory errors on GPU %d: no GPU instance %d", at.GPU, at.Instance)
			}
			g.Instances[at.Instance].ECCUncorrected += uncorrected
			g.LifetimeECCUncorrected += uncorrected
			return nil
		})
	})
	if err != nil {
		return err
	}
	return post(dir, at, eventDoubleBitECC, 0)
}

// Remapping is what the row remapper of a GPU has done.
type Remapping struct {
	Correctable, Uncorrectable uint32
	// Pending: the next reset remaps a row, as after an uncorrectable error. Failed: a row could not be remapped.
	Pending, Failed bool
}

// Remap sets the report of the row remapper.
func Remap(dir string, gpu int, r Remapping) error {
	return changeGPU(dir, gpu, func(g *gpuState) {
		g.RemapCorrectable, g.RemapUncorrectable = r.Correctable, r.Uncorrectable
		g.RemapPending, g.RemapFailed = flag(r.Pending), flag(r.Failed)
	})
}

// RequireRecovery sets the action that the driver requires, nvmlDeviceGpuRecoveryAction_t; 0 is none. A reset ends that of a reset, a restart of the machine
// every one.
func RequireRecovery(dir string, gpu int, action uint32) error {
	return changeGPU(dir, gpu, func(g *gpuState) { g.RecoveryAction = action })
}

// PinMIG makes the driver keep the MIG devices of a GPU while another program has the GPU open, as driver 580 did on H200s under DCGM (DCGM issue 276).
func PinMIG(dir string, gpu int) error {
	return changeGPU(dir, gpu, func(g *gpuState) { g.PinsMIG = 1 })
}

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// Forever is the count of a fault that does not expire.
const Forever = math.MaxUint32

// What nvidia-smi does without NVML, as functions to Fail or Slow: set a time slice, and reset GPUs.
const (
	SetTimeSlice = "nvidia-smi:set-timeslice"
	ResetGPU     = "nvidia-smi:gpu-reset"
)

// functionOf returns the function of the library that implements a name; only operations of nvidia-smi without NVML have
// names here.
func functionOf(name string) string {
	switch name {
	case SetTimeSlice:
		return "fakegpuSetTimeSlice"
	case ResetGPU:
		return "fakegpuReset"
	}
	return name
}

// Fail makes the next count calls of an NVML function, of SetTimeSlice or of ResetGPU return the code; Forever: all of them.
// Processes in containers see only faults of count Forever: they cannot write the count.
func Fail(dir, function string, code, count uint32) error {
	return changeFault(dir, function, func(f *fault) { f.Code, f.Count = code, count })
}

// Slow delays every call of an NVML function by this time; 0 ends it.
func Slow(dir, function string, by time.Duration) error {
	return changeFault(dir, function, func(f *fault) { f.DelayMS = uint32(by.Milliseconds()) })
}

// Virtualization is how a GPU belongs to a virtual machine (nvmlGpuVirtualizationMode_t).
type Virtualization uint32

// A machine without virtualization; a guest with the whole GPU; a guest with a virtual GPU, which cannot change the MIG mode.
const (
	NoVirtualization Virtualization = 0
	Passthrough      Virtualization = 1
	VirtualGPU       Virtualization = 2
)

// Virtualize puts the GPU into a virtual machine. In some with the whole GPU, the MIG mode changes only with a reset (NVIDIA MIG User Guide).
func Virtualize(dir string, gpu int, v Virtualization, migNeedsReset bool) error {
	return changeGPU(dir, gpu, func(g *gpuState) { g.Virtualization, g.MIGNeedsReset = uint32(v), flag(migNeedsReset) })
}

// LargerProfiles makes the GPU report its MIG profiles with more memory and multiprocessors while MIG is off. On hardware
// they differ with the mode: published tables of one B200 have 22.00 and 20.50 GiB for profile 1g (mig-parted 166, 187).
func LargerProfiles(dir string, gpu int, memoryMIB, multiprocessors uint32) error {
	return changeGPU(dir, gpu, func(g *gpuState) { g.LargerMemoryMIB, g.LargerMultiprocessors = memoryMIB, multiprocessors })
}

// Latency sets how long creating and destroying a GPU instance takes; on hardware, about a second.
func Latency(dir string, create, destroy time.Duration) error {
	return changeLive(dir, func(l *live) error {
		l.CreateMS, l.DestroyMS = uint32(create.Milliseconds()), uint32(destroy.Milliseconds())
		return nil
	})
}

// Stall makes every call of the host, for any GPU, wait while a GPU instance is created or destroyed (Latency), as was measured for 10 s and longer
// (NVIDIA's DRA driver, nvlib.go).
func Stall(dir string) error {
	return changeLive(dir, func(l *live) error {
		l.Stalls = 1
		return nil
	})
}

func changeFault(dir, function string, f func(*fault)) error {
	function = functionOf(function)
	if err := checkFunction(dir, function); err != nil {
		return err
	}
	return changeLive(dir, func(l *live) error {
		var name text64
		copy(name[:], function)
		for i := range l.FaultCount {
			if l.Faults[i].Function == name {
				f(&l.Faults[i])
				return nil
			}
		}
		if l.FaultCount == maxFaults {
			return fmt.Errorf("more than %d functions with faults: reset first", maxFaults)
		}
		l.Faults[l.FaultCount].Function = name
		f(&l.Faults[l.FaultCount])
		l.FaultCount++
		return nil
	})
}

// checkFunction rejects names that the installed library does not have.
func checkFunction(dir, function string) error {
	if spec, err := ReadSpec(dir); err != nil || spec.Bare {
		return err // a bare machine has no library yet
	}
	names, err := exported(Library(dir))
	if err != nil {
		return err
	}
	if !slices.Contains(names, function) {
		return fmt.Errorf("%s: no such function in %s", function, Library(dir))
	}
	return nil
}

// exported returns the functions that a library has, sorted.
func exported(library string) ([]string, error) {
	file, err := elf.Open(library)
	if err != nil {
		return nil, fmt.Errorf("read the symbols of %s: %w", library, err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read the symbols of %s: %w", library, err)
	}
	var names []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func post(dir string, at Place, kind, data uint64) error {
	return withState(dir, func(s *session) error {
		if err := s.checkGPU(at.GPU); err != nil {
			return err
		}
		return s.post(at.event(kind, data))
	})
}

func (at Place) event(kind, data uint64) event {
	return event{Type: kind, Data: data, GPU: uint32(at.GPU), Instance: uint32(at.Instance), Compute: uint32(at.Compute)}
}

func changeGPU(dir string, gpu int, f func(*gpuState)) error {
	return withState(dir, func(s *session) error {
		if err := s.checkGPU(gpu); err != nil {
			return err
		}
		return s.change(func(l *live) error {
			f(&l.GPUs[gpu])
			return nil
		})
	})
}

func changeLive(dir string, f func(*live) error) error {
	return withState(dir, func(s *session) error { return s.change(f) })
}

// withState runs f with the state of the installed machine.
func withState(dir string, f func(*session) error) error {
	spec, err := ReadSpec(dir)
	if err != nil {
		return err
	}
	s, err := openState(findState(dir, spec))
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

func (s *session) checkGPU(gpu int) error {
	if count := int(s.state().Hardware.GPUCount); gpu < 0 || gpu >= count {
		return fmt.Errorf("GPU %d: the machine has 0 to %d", gpu, count-1)
	}
	return nil
}
