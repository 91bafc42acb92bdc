package fakegpu

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// readingsOf reads through NVML what Sense sets.
func readingsOf(t *testing.T, d nvml.Device) Readings {
	t.Helper()
	var r Readings
	rates, ret := d.GetUtilizationRates()
	succeed(t, "GetUtilizationRates", ret)
	r.GPUUtilization, r.MemoryUtilization = rates.Gpu, rates.Memory
	r.EncoderUtilization, _, ret = d.GetEncoderUtilization()
	succeed(t, "GetEncoderUtilization", ret)
	r.DecoderUtilization, _, ret = d.GetDecoderUtilization()
	succeed(t, "GetDecoderUtilization", ret)
	r.Temperature, ret = d.GetTemperature(nvml.TEMPERATURE_GPU)
	succeed(t, "GetTemperature", ret)
	r.Power, ret = d.GetPowerUsage()
	succeed(t, "GetPowerUsage", ret)
	r.Energy, ret = d.GetTotalEnergyConsumption()
	succeed(t, "GetTotalEnergyConsumption", ret)
	r.SMClock, ret = d.GetClockInfo(nvml.CLOCK_SM)
	succeed(t, "GetClockInfo", ret)
	r.MemoryClock, ret = d.GetClockInfo(nvml.CLOCK_MEM)
	succeed(t, "GetClockInfo", ret)
	r.ClockReasons, ret = d.GetCurrentClocksEventReasons()
	succeed(t, "GetCurrentClocksEventReasons", ret)
	older, ret := d.GetCurrentClocksThrottleReasons()
	succeed(t, "GetCurrentClocksThrottleReasons", ret)
	if older != r.ClockReasons {
		t.Errorf("throttle reasons %#x, event reasons %#x", older, r.ClockReasons)
	}
	return r
}

func TestSensors(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		d := gpuAt(t, lib, 1)
		if diff := cmp.Diff(Idle(), readingsOf(t, d)); diff != "" {
			t.Errorf("at the start (-want +got):\n%s", diff)
		}
		want := Readings{
			GPUUtilization: 97, MemoryUtilization: 41, EncoderUtilization: 3, DecoderUtilization: 4, Temperature: 71, Power: 612_345,
			Energy: 123_456_789_012, SMClock: 1755, MemoryClock: 2619, ClockReasons: nvml.ClocksEventReasonSwPowerCap,
		}
		must(t, Sense(dir, 1, want))
		if diff := cmp.Diff(want, readingsOf(t, d)); diff != "" {
			t.Errorf("a busy GPU (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(Idle(), readingsOf(t, gpuAt(t, lib, 0))); diff != "" {
			t.Errorf("its neighbour (-want +got):\n%s", diff)
		}
		_, _, ret := d.GetRetiredPages_v2(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
		expect(t, "GetRetiredPages of a Hopper", ret, nvml.ERROR_NOT_SUPPORTED)
		must(t, CountLinkErrors(dir, 1, 4, 7))
		must(t, CountLinkErrors(dir, 1, 4, 2))
		for link, want := range map[int]uint64{3: 0, 4: 9} {
			count, ret := d.GetNvLinkErrorCounter(link, nvml.NVLINK_ERROR_DL_CRC_FLIT)
			succeed(t, "GetNvLinkErrorCounter", ret)
			if count != want {
				t.Errorf("link %d: %d errors, want %d", link, count, want)
			}
		}
		must(t, Reset(dir))
		if diff := cmp.Diff(Idle(), readingsOf(t, d)); diff != "" {
			t.Errorf("after a reset (-want +got):\n%s", diff)
		}
		if err := Sense(dir, 0, Readings{GPUUtilization: 101}); err == nil {
			t.Error("101 % was accepted")
		}
		if err := CountLinkErrors(dir, 0, maxNVLinks, 1); err == nil {
			t.Error("a link that no GPU has was accepted")
		}
	})
}

func TestRetiredPages(t *testing.T) {
	withNVML(t, Spec{Machine: "t4x1"}, func(t *testing.T, dir string, lib nvml.Interface) {
		must(t, Sense(dir, 0, Readings{RetiredSingleBit: 2, RetiredDoubleBit: 3}))
		for cause, want := range map[nvml.PageRetirementCause]int{
			nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS: 2,
			nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR:           3,
		} {
			pages, ret := gpuAt(t, lib, 0).GetRetiredPages(cause)
			succeed(t, "GetRetiredPages", ret)
			if len(pages) != want {
				t.Errorf("cause %d: %d pages, want %d", cause, len(pages), want)
			}
		}
	})
}

// A program in another PID namespace, as an agent's pod without hostPID is, gets none of the processes of the node: NVML translates process IDs for
// its caller and omits those that have none there.
func TestProcessesOfOtherPIDNamespaces(t *testing.T) {
	dir, client := inClient()
	if !client {
		dir = install(t, Spec{Machine: "h100x2"})
		must(t, StartProcess(dir, On(0), 4711, 1<<30))
		runClient(t, dir, "WANT_PROCESSES=1")
		command := clientCommand(t, dir, "WANT_PROCESSES=0")
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		if os.Geteuid() != 0 {
			t.Skip("only root creates PID namespaces")
		}
		finish(t, command)
		return
	}
	processes, ret := gpuAt(t, start(t, dir), 0).GetComputeRunningProcesses()
	succeed(t, "GetComputeRunningProcesses", ret)
	if got, want := strconv.Itoa(len(processes)), os.Getenv("WANT_PROCESSES"); got != want {
		t.Errorf("%s processes are visible, want %s", got, want)
	}
}

func TestProcesses(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		const gib = 1 << 30
		none := ^uint32(0)
		whole, sliced := gpuAt(t, lib, 0), gpuAt(t, lib, 1)
		must(t, StartProcess(dir, On(0), 4711, 2*gib))
		must(t, StartProcess(dir, On(0), 4712, 3*gib))
		must(t, StartProcess(dir, On(0), 4711, gib))
		compareProcesses(t, whole, 4*gib, []nvml.ProcessInfo{
			{Pid: 4711, UsedGpuMemory: gib, GpuInstanceId: none, ComputeInstanceId: none},
			{Pid: 4712, UsedGpuMemory: 3 * gib, GpuInstanceId: none, ComputeInstanceId: none},
		})
		must(t, EndProcess(dir, On(0), 4711))
		if EndProcess(dir, On(0), 4711) == nil {
			t.Error("a process ended twice")
		}

		_, ret := sliced.SetMigMode(nvml.DEVICE_MIG_ENABLE)
		succeed(t, "SetMigMode", ret)
		a, b := create(t, sliced, 19, 0, 1), create(t, sliced, 19, 1, 1)
		first, second := createCompute(t, a, 0), createCompute(t, b, 0)
		info, ret := b.GetInfo()
		succeed(t, "GetInfo", ret)
		must(t, StartProcess(dir, Place{GPU: 1, Instance: int(info.Id), Compute: 0}, 99, gib))
		want := []nvml.ProcessInfo{{Pid: 99, UsedGpuMemory: gib, GpuInstanceId: info.Id}}
		compareProcesses(t, migDevice(t, first), 0, nil)
		compareProcesses(t, migDevice(t, second), gib, want)
		compareProcesses(t, sliced, gib, want)

		for what, d := range map[string]nvml.Device{"a GPU in MIG mode": sliced, "a MIG device": migDevice(t, second)} {
			_, ret := d.GetUtilizationRates()
			expect(t, "GetUtilizationRates of "+what, ret, nvml.ERROR_NOT_SUPPORTED)
		}
		attributes, ret := migDevice(t, second).GetAttributes()
		succeed(t, "GetAttributes", ret)
		memory, ret := migDevice(t, second).GetMemoryInfo()
		succeed(t, "GetMemoryInfo", ret)
		if attributes.MemorySizeMB != memory.Total>>20 {
			t.Errorf("attributes: %d MiB, memory: %d bytes", attributes.MemorySizeMB, memory.Total)
		}
	})
}

// compareProcesses compares what NVML lists on a device, and how much memory that uses.
func compareProcesses(t *testing.T, d nvml.Device, used uint64, want []nvml.ProcessInfo) {
	t.Helper()
	got, ret := d.GetComputeRunningProcesses()
	succeed(t, "GetComputeRunningProcesses", ret)
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	plain, ret := d.GetMemoryInfo()
	succeed(t, "GetMemoryInfo", ret)
	versioned, ret := d.GetMemoryInfo_v2()
	succeed(t, "GetMemoryInfo_v2", ret)
	if plain.Used != used+versioned.Reserved || versioned.Used != used || plain.Free != plain.Total-plain.Used {
		t.Errorf("memory %+v, %+v, want %d used", plain, versioned, used)
	}
}

// TestModes: time slice and compute mode are refused where hardware refuses them, and a restart undoes
// them.
func TestModes(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		d := gpuAt(t, lib, 0)
		succeed(t, "exclusive", d.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
		expect(t, "given up", d.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_THREAD), nvml.ERROR_NOT_SUPPORTED)
		expect(t, "nonsense", d.SetComputeMode(nvml.COMPUTEMODE_COUNT), nvml.ERROR_INVALID_ARGUMENT)
		play(t, dir, "$ nvidia-smi compute-policy -i 0 --set-timeslice=2")
		compareModes(t, dir, 2, ComputeExclusiveProcess)

		enableTo(t, d, nil, nvml.SUCCESS)
		compareModes(t, dir, 2, ComputeDefault)
		expect(t, "in MIG mode", d.SetComputeMode(nvml.COMPUTEMODE_PROHIBITED), nvml.ERROR_NOT_SUPPORTED)
		_, ret := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
		succeed(t, "SetMigMode", ret)
		succeed(t, "prohibited", d.SetComputeMode(nvml.COMPUTEMODE_PROHIBITED))
		compareModes(t, dir, 2, ComputeProhibited)
		must(t, Reboot(dir))
		compareModes(t, dir, 0, ComputeDefault)
	})
}

func compareModes(t *testing.T, dir string, slice int, mode ComputeMode) {
	t.Helper()
	state, err := Read(dir)
	must(t, err)
	if g := state.GPUs[0]; g.TimeSlice != slice || g.ComputeMode != mode {
		t.Errorf("time slice %d and compute mode %d, want %d and %d", g.TimeSlice, g.ComputeMode, slice, mode)
	}
}
