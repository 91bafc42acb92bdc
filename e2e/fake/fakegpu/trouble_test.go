package fakegpu

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// smi runs nvidia-smi and returns its output and its exit status.
func smi(t *testing.T, dir string, arguments ...string) (string, int) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), SMI(dir), arguments...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(output), exit.ExitCode()
	}
	must(t, err)
	return string(output), 0
}

// alive returns NVML's code for a query of the GPU's power.
func alive(lib nvml.Interface, gpu int) nvml.Return {
	d, ret := lib.DeviceGetHandleByIndex(gpu)
	if ret == nvml.SUCCESS {
		_, ret = d.GetPowerUsage()
	}
	return ret
}

// TestWhatEndsWhat: what makes an unresponsive GPU respond again.
func TestWhatEndsWhat(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		again := func(do func() error) func() error {
			return func() error {
				succeed(t, "Shutdown", lib.Shutdown())
				defer func() { succeed(t, "Init", lib.Init()) }()
				return do()
			}
		}
		resetGPU := again(func() error {
			if output, code := smi(t, dir, "-r", "-i", "00000000:43:00.0"); code != 0 {
				return errors.New(output)
			}
			return nil
		})
		other := again(func() error { return errors.Join(RemoveDriver(dir), RestoreDriver(dir)) })
		reboot := again(func() error { return Reboot(dir) })
		find, restore := func() error { return Find(dir, 1) }, func() error { return Heal(dir, 1) }
		tests := []struct {
			what   string
			injure func(string, int) error
			remedy func() error
			want   nvml.Return
		}{
			{"lost, reset", Lose, resetGPU, nvml.ERROR_GPU_IS_LOST},
			{"lost, another driver", Lose, other, nvml.ERROR_GPU_IS_LOST},
			{"lost, rebooted", Lose, reboot, nvml.SUCCESS},
			{"lost, found", Lose, find, nvml.SUCCESS},
			{"lost, restored", Lose, restore, nvml.SUCCESS},
			{"stuck, nothing", RequireReset, func() error { return nil }, nvml.ERROR_RESET_REQUIRED},
			{"stuck, reset", RequireReset, resetGPU, nvml.SUCCESS},
			{"stuck, another driver", RequireReset, other, nvml.SUCCESS},
		}
		for _, test := range tests {
			must(t, Heal(dir, 1))
			must(t, test.injure(dir, 1))
			err := test.remedy()
			if got := alive(lib, 1); got != test.want {
				t.Errorf("%s: %v, want %v (%v)", test.what, name(got), name(test.want), err)
			}
			if refused := err != nil; refused != (test.what == "lost, reset") {
				t.Errorf("%s: %v", test.what, err)
			}
			if got := alive(lib, 0); got != nvml.SUCCESS {
				t.Errorf("%s: the other GPU: %v", test.what, name(got))
			}
		}
	})
}

// TestGPUReset: what a reset of a GPU changes and what it keeps.
func TestGPUReset(t *testing.T) {
	dir, client := inClient()
	if !client {
		runClient(t, install(t, Spec{Machine: "h100x2"}))
		return
	}
	lib := nvml.New(nvml.WithLibraryPath(Library(dir)))
	succeed(t, "Init", lib.Init())
	d := gpuAt(t, lib, 0)
	enable(t, d)
	createCompute(t, create(t, d, 19, 2, 1), 0)
	succeed(t, "SetComputeMode", gpuAt(t, lib, 1).SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
	for _, gpu := range []int{0, 1} {
		must(t, ECC(dir, gpu, 3, 1))
		must(t, Remap(dir, gpu, Remapping{Uncorrectable: 1, Pending: true, Failed: true}))
		must(t, LinkDown(dir, gpu, 4))
		must(t, SlowDown(dir, gpu, HeatBrake))
		must(t, RequireRecovery(dir, gpu, uint32(nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET)))
	}
	smi(t, dir, "compute-policy", "-i", "1", "--set-timeslice=2")

	output, code := smi(t, dir, "-r", "-i", "0,1")
	if code != 255 || !strings.Contains(output, "In use by another client") {
		t.Errorf("with NVML open: exit %d: %s", code, output)
	}
	succeed(t, "Shutdown", lib.Shutdown())
	must(t, StartProcess(dir, On(1), 12, 0))
	if output, code := smi(t, dir, "-r", "-i", "0,1"); code != 255 || !strings.Contains(output, "GPU 00000000:43:00.0: In use") {
		t.Errorf("with a process on the second: exit %d: %s", code, output)
	}
	must(t, EndProcess(dir, On(1), 12))
	smi(t, dir, "-pm", "1", "-i", "1")
	if output, code := smi(t, dir, "-r", "-i", "0,1"); code != 255 {
		t.Errorf("in persistence mode: exit %d: %s", code, output)
	}
	smi(t, dir, "-pm", "0", "-i", "1")
	state, err := Read(dir)
	must(t, err)
	if g := state.GPUs[0]; g.Resets != 0 || len(g.Instances) != 1 {
		t.Errorf("a refused reset did something: %+v", g)
	}

	if output, code := smi(t, dir, "--gpu-reset", "-i", "00000000:1B:00.0,00000000:43:00.0"); code != 0 {
		t.Fatalf("exit %d: %s", code, output)
	}
	state, err = Read(dir)
	must(t, err)
	for _, g := range state.GPUs {
		if g.Resets != 1 || len(g.Instances) != 0 || g.MIG != (g.Index == 0) || g.TimeSlice != 0 || g.ComputeMode != ComputeDefault {
			t.Errorf("after the reset: %+v", g)
		}
	}
	succeed(t, "Init", lib.Init())
	defer lib.Shutdown()
	d = gpuAt(t, lib, 1)
	volatile, _ := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	lifetime, _ := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC)
	_, uncorrectable, pending, failed, _ := d.GetRemappedRows()
	link, _ := d.GetNvLinkState(4)
	reasons, _ := d.GetCurrentClocksEventReasons()
	recovery := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	succeed(t, "GetFieldValues", d.GetFieldValues(recovery))
	got := []any{volatile, lifetime, uncorrectable, pending, failed, link, reasons & uint64(HeatBrake), recovery[0].Value[0]}
	if diff := cmp.Diff([]any{uint64(0), uint64(1), 2, false, true, nvml.FEATURE_ENABLED, uint64(HeatBrake), uint8(nvml.GPU_RECOVERY_ACTION_NONE)}, got); diff != "" {
		t.Errorf("errors since the load, ever, rows remapped, pending, failed, a link, heat, the recovery action (-want +got):\n%s", diff)
	}
}

// TestResetTogether: before Ampere, GPUs with NVLinks between them are reset together or not at all.
func TestResetTogether(t *testing.T) {
	t.Parallel()
	dir := install(t, Spec{Machine: "dgx1"})
	if output, code := smi(t, dir, "-r", "-i", "0"); code != 255 || !strings.Contains(output, "must be reset together") {
		t.Errorf("one of them: exit %d: %s", code, output)
	}
	if output, code := smi(t, dir, "-r", "-i", "0,1,2,3,4,5,6,7"); code != 0 {
		t.Errorf("all of them: exit %d: %s", code, output)
	}
	must(t, Fail(dir, ResetGPU, uint32(nvml.ERROR_UNKNOWN), 1))
	if output, code := smi(t, dir, "-r"); code != 255 || !strings.Contains(output, "Unknown Error") {
		t.Errorf("a reset that fails: exit %d: %s", code, output)
	}
	if output, code := smi(t, dir, "-r"); code != 0 {
		t.Errorf("the next: exit %d: %s", code, output)
	}
}

func TestPagesAreRetired(t *testing.T) {
	withNVML(t, Spec{Machine: "t4x1"}, func(t *testing.T, dir string, lib nvml.Interface) {
		pages := func() (nvml.EnableState, int) {
			d := gpuAt(t, lib, 0)
			pending, ret := d.GetRetiredPagesPendingStatus()
			succeed(t, "GetRetiredPagesPendingStatus", ret)
			retired, ret := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
			succeed(t, "GetRetiredPages", ret)
			return pending, len(retired)
		}
		must(t, RetirePages(dir, 0, 2))
		if pending, retired := pages(); pending != nvml.FEATURE_ENABLED || retired != 0 {
			t.Errorf("pending %d, retired %d", pending, retired)
		}
		succeed(t, "Shutdown", lib.Shutdown())
		must(t, Reboot(dir))
		succeed(t, "Init", lib.Init())
		if pending, retired := pages(); pending != nvml.FEATURE_DISABLED || retired != 2 {
			t.Errorf("after a reboot: pending %d, retired %d", pending, retired)
		}
	})
}

func TestFabricTrouble(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x8"}, func(t *testing.T, dir string, lib nvml.Interface) {
		d := gpuAt(t, lib, 2)
		info := func() nvml.GpuFabricInfo_v3 {
			info, ret := d.GetGpuFabricInfoV().V3()
			succeed(t, "GetGpuFabricInfoV", ret)
			return info
		}
		if got := info(); got.State != nvml.GPU_FABRIC_STATE_COMPLETED || got.HealthSummary != nvml.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY {
			t.Errorf("at first: %+v", got)
		}
		must(t, Fabric(dir, 2, FabricReport{State: FabricInProgress}))
		if got := info(); got.State != nvml.GPU_FABRIC_STATE_IN_PROGRESS {
			t.Errorf("joining: %+v", got)
		}
		must(t, Fabric(dir, 2, FabricReport{Health: FabricRouteUnhealthy, Status: 999}))
		if got := info(); got.HealthSummary != nvml.GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY || got.HealthMask != 1<<4 || got.Status != 999 {
			t.Errorf("a bad route: %+v", got)
		}
		must(t, Heal(dir, 2))
		if got := info(); got.HealthSummary != nvml.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY || got.Status != 0 {
			t.Errorf("restored: %+v", got)
		}
	})
}

// TestErrorsOfMIGDevices: in MIG mode memory errors since the load of the driver are counted by MIG device.
func TestErrorsOfMIGDevices(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		d := gpuAt(t, lib, 0)
		enable(t, d)
		gi := create(t, d, 19, 2, 1)
		info, ret := gi.GetInfo()
		succeed(t, "GetInfo", ret)
		mig := migDevice(t, createCompute(t, gi, 0))
		if err := InstanceECC(dir, Place{GPU: 0, Instance: 3, Compute: Whole}, 1); err == nil {
			t.Error("an instance that is not there was accepted")
		}
		must(t, InstanceECC(dir, Place{GPU: 0, Instance: int(info.Id), Compute: Whole}, 2))
		count, ret := mig.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		succeed(t, "GetTotalEccErrors of the MIG device", ret)
		if count != 2 {
			t.Errorf("%d errors, want 2", count)
		}
		_, ret = mig.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)
		expect(t, "corrected errors of the MIG device", ret, nvml.ERROR_NOT_SUPPORTED)
		_, ret = d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		expect(t, "of the GPU", ret, nvml.ERROR_NOT_SUPPORTED)
		count, ret = d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC)
		succeed(t, "of the GPU ever", ret)
		if count != 2 {
			t.Errorf("%d errors ever, want 2", count)
		}
	})
}

// TestStorm: XIDs come at their rate, and a listener gets every one.
func TestStorm(t *testing.T) {
	withNVML(t, Spec{Machine: "t4x1"}, func(t *testing.T, dir string, lib nvml.Interface) {
		set := eventSet(t, lib)
		succeed(t, "RegisterEvents", gpuAt(t, lib, 0).RegisterEvents(nvml.EventTypeXidCriticalError, set))
		posted := 0
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer stop()
			var err error
			posted, err = Storm(ctx, dir, On(0), 31, 2000)
			must(t, err)
			// The last tick and the end come together.
			if posted < 598 || posted > 600 {
				t.Errorf("%d XIDs in 0.3 s, want 600", posted)
			}
		})
		got := 0
		for _, ret := set.Wait(0); ret == nvml.SUCCESS; _, ret = set.Wait(0) {
			got++
		}
		if got != posted {
			t.Errorf("%d of %d XIDs arrived", got, posted)
		}
		if _, err := Storm(t.Context(), dir, On(1), 31, 10); err == nil {
			t.Error("a GPU that is not there was accepted")
		}
	})
}

// TestLostOnTheBus: a GPU that has fallen off the bus does not respond there either, also on a machine
// without a driver.
func TestLostOnTheBus(t *testing.T) {
	t.Parallel()
	dir := installAll(t, Spec{Machine: "h100x2", Bare: true})
	vendor := func() string {
		return fmt.Sprintf("%x", read(t, SysRoot(dir), "bus/pci/devices/0000:43:00.0/config")[:2])
	}
	for _, end := range []func() error{
		func() error { return Find(dir, 1) }, func() error { return Heal(dir, 1) }, func() error { return Reset(dir) }, func() error { return Reboot(dir) },
	} {
		must(t, Lose(dir, 1))
		if got := vendor(); got != "ffff" {
			t.Errorf("lost: the vendor reads %s", got)
		}
		must(t, end())
		if got := vendor(); got != "de10" {
			t.Errorf("found: the vendor reads %s", got)
		}
	}
}
