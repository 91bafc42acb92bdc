package fakegpu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		d := gpuAt(t, lib, 0)
		must(t, Fail(dir, "nvmlDeviceGetName", uint32(nvml.ERROR_UNKNOWN), 2))
		for _, want := range []nvml.Return{nvml.ERROR_UNKNOWN, nvml.ERROR_UNKNOWN, nvml.SUCCESS} {
			_, ret := d.GetName()
			expect(t, "GetName", ret, want)
		}
		must(t, Slow(dir, "nvmlDeviceGetName", 30*time.Millisecond))
		begin := time.Now()
		_, ret := d.GetName()
		succeed(t, "GetName", ret)
		if took := time.Since(begin); took < 30*time.Millisecond {
			t.Errorf("a slow call took %v", took)
		}
		must(t, Fail(dir, "nvmlDeviceGetUUID", uint32(nvml.ERROR_NO_PERMISSION), Forever))
		must(t, Lose(dir, 1))
		for range 3 {
			_, ret = d.GetUUID()
			expect(t, "GetUUID", ret, nvml.ERROR_NO_PERMISSION)
		}
		_, ret = lib.DeviceGetHandleByIndex(1)
		expect(t, "the lost GPU", ret, nvml.ERROR_GPU_IS_LOST)
		count, ret := lib.DeviceGetCount()
		succeed(t, "DeviceGetCount", ret)
		if count != 2 {
			t.Errorf("%d GPUs, one of them lost, want 2", count)
		}
		must(t, Reset(dir))
		_, ret = d.GetUUID()
		succeed(t, "GetUUID", ret)
		gpuAt(t, lib, 1)
		if err := Fail(dir, "nvmlDeviceGetNames", 1, 1); err == nil {
			t.Error("a fault of an unknown function was accepted")
		}
	})
}

func TestHealth(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		d := gpuAt(t, lib, 1)
		must(t, ECC(dir, 1, 3, 1))
		must(t, Remap(dir, 1, Remapping{Correctable: 1, Uncorrectable: 2, Pending: true}))
		must(t, LinkDown(dir, 1, 5))
		corrected, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)
		succeed(t, "GetTotalEccErrors", ret)
		uncorrected, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		succeed(t, "GetTotalEccErrors", ret)
		correctable, uncorrectable, pending, failed, ret := d.GetRemappedRows()
		succeed(t, "GetRemappedRows", ret)
		link, ret := d.GetNvLinkState(5)
		succeed(t, "GetNvLinkState", ret)
		got := fmt.Sprint(corrected, uncorrected, correctable, uncorrectable, pending, failed, link)
		if want := fmt.Sprint(3, 1, 1, 2, true, false, nvml.FEATURE_DISABLED); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := ECC(dir, 2, 1, 0); err == nil {
			t.Error("a GPU that is not there was accepted")
		}
		if err := LinkDown(dir, 0, 18); err == nil {
			t.Error("a link that is not there was accepted")
		}
	})
}

// TestLatency: creating an instance on one GPU takes the set time and does not delay another GPU.
func TestLatency(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		slow, other := gpuAt(t, lib, 0), gpuAt(t, lib, 1)
		enable(t, slow)
		enable(t, other)
		quick := create(t, other, 19, 0, 1)
		const latency = 50 * time.Millisecond
		must(t, Latency(dir, latency, 0))
		begin := time.Now()
		create(t, slow, 19, 0, 1)
		if elapsed := time.Since(begin); elapsed < latency {
			t.Errorf("an instance was made in %v", elapsed)
		}
		must(t, Latency(dir, time.Hour, 0))
		made := make(chan nvml.Return, 1)
		go func() { // it ends with the client
			_, ret := tryCreate(slow, 19, 1, 1)
			made <- ret
		}()
		for len(made) == 0 && !busy(t, dir, 0) {
			runtime.Gosched()
		}
		createCompute(t, quick, 0)
		succeed(t, "SetMigMode", setMode(other))
		select {
		case ret := <-made:
			t.Errorf("another GPU waited for an instance: %v", name(ret))
		default:
		}
	})
}

// TestStall: every call waits until an instance of another GPU is created.
func TestStall(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		slow, other := gpuAt(t, lib, 0), gpuAt(t, lib, 1)
		enable(t, slow)
		const latency = 200 * time.Millisecond
		must(t, Latency(dir, latency, 0))
		must(t, Stall(dir))
		begin := time.Now()
		made := make(chan struct{})
		go func() {
			defer close(made)
			create(t, slow, 19, 0, 1)
		}()
		for !busy(t, dir, 0) {
			runtime.Gosched()
		}
		_, ret := other.GetPowerUsage()
		succeed(t, "GetPowerUsage", ret)
		if elapsed := time.Since(begin); elapsed < latency {
			t.Errorf("a call returned after %v, while an instance was created", elapsed)
		}
		<-made
	})
}

// busy reports whether a process is changing the instances of the GPU (LOCK_BUSY of
// engine/shared/lock.h).
func busy(t *testing.T, dir string, gpu int64) bool {
	t.Helper()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: stateLock + 1 + gpu, Len: 1}
	must(t, withState(dir, func(s *session) error { return s.lock(unix.F_OFD_GETLK, &lock) }))
	return lock.Type != unix.F_UNLCK
}

func setMode(d nvml.Device) nvml.Return {
	_, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	return ret
}

// TestFailEveryCall fails each call of a small program once: the log of a run without faults has the
// number of calls.
func TestFailEveryCall(t *testing.T) {
	if dir, client := inClient(); client {
		lib := nvml.New(nvml.WithLibraryPath(Library(dir)))
		outcome := func() error {
			if ret := lib.Init(); ret != nvml.SUCCESS {
				return errors.New(name(ret))
			}
			defer lib.Shutdown()
			if _, ret := lib.DeviceGetCount(); ret != nvml.SUCCESS {
				return errors.New(name(ret))
			}
			return nil
		}
		if err := outcome(); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := install(t, Spec{Machine: "t4x1"})
	log := filepath.Join(t.TempDir(), "calls")
	runClient(t, dir, "FAKE_NVML_LOG="+log)
	data, err := os.ReadFile(log)
	must(t, err)
	calls := strings.Fields(string(data))
	if diff := cmp.Diff([]string{"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlShutdown"}, calls); diff != "" {
		t.Fatalf("calls (-want +got):\n%s", diff)
	}
	for n, call := range calls[:2] {
		output, err := clientCommand(t, dir, fmt.Sprintf("FAKE_NVML_FAIL=%d:999", n+1)).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "Unknown Error") {
			t.Errorf("the failure of %s: %v\n%s", call, err, output)
		}
	}
	runClient(t, dir, "FAKE_NVML_FAIL=4:999")
}

func TestEvents(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		must(t, XID(dir, On(0), 13)) // before a listener registers
		one, other := eventSet(t, lib), eventSet(t, lib)
		for i := range 2 {
			succeed(t, "RegisterEvents", gpuAt(t, lib, i).RegisterEvents(nvml.EventTypeXidCriticalError, one))
		}
		succeed(t, "RegisterEvents", gpuAt(t, lib, 1).RegisterEvents(nvml.EventTypeXidCriticalError|nvml.EventTypeDoubleBitEccError, other))
		expect(t, "register an unknown event", gpuAt(t, lib, 1).RegisterEvents(nvml.EventTypePState, other), nvml.ERROR_NOT_SUPPORTED)

		begin := time.Now()
		_, ret := one.Wait(50)
		expect(t, "Wait with nothing there", ret, nvml.ERROR_TIMEOUT)
		if took := time.Since(begin); took < 50*time.Millisecond {
			t.Errorf("the wait ended after %v", took)
		}
		must(t, XID(dir, Place{GPU: 1, Instance: 7, Compute: 0}, 63))
		must(t, ECC(dir, 1, 0, 1))
		must(t, Lose(dir, 0))
		const whole = 0xFFFFFFFF
		want := map[string][]string{
			"one":   {event5(1, nvml.EventTypeXidCriticalError, 63, 7, 0), event5(0, nvml.EventTypeXidCriticalError, 79, whole, whole)},
			"other": {event5(1, nvml.EventTypeXidCriticalError, 63, 7, 0), event5(1, nvml.EventTypeDoubleBitEccError, 0, whole, whole)},
		}
		second := gpuAt(t, lib, 1)
		for which, set := range map[string]nvml.EventSet{"one": one, "other": other} {
			var got []string
			for {
				data, ret := set.Wait(10)
				if ret == nvml.ERROR_TIMEOUT {
					break
				}
				succeed(t, "Wait", ret)
				index := 0
				if data.Device == second {
					index = 1
				}
				got = append(got, event5(index, data.EventType, data.EventData, data.GpuInstanceId, data.ComputeInstanceId))
			}
			if diff := cmp.Diff(want[which], got); diff != "" {
				t.Errorf("set %s (-want +got):\n%s", which, diff)
			}
		}
	})
}

func eventSet(t *testing.T, lib nvml.Interface) nvml.EventSet {
	t.Helper()
	set, ret := lib.EventSetCreate()
	succeed(t, "EventSetCreate", ret)
	return set
}

func event5(gpu int, kind, data uint64, instance, compute uint32) string {
	return fmt.Sprintf("gpu%d type %#x data %d gi %d ci %d", gpu, kind, data, instance, compute)
}

// TestWaitingForEvents: an event wakes the waiter at once, the end of the driver ends the wait, and
// an overflow of the ring loses only the oldest.
func TestWaitingForEvents(t *testing.T) {
	withNVML(t, Spec{Machine: "t4x1"}, func(t *testing.T, dir string, lib nvml.Interface) {
		set := eventSet(t, lib)
		succeed(t, "RegisterEvents", gpuAt(t, lib, 0).RegisterEvents(nvml.EventTypeXidCriticalError, set))
		type outcome struct {
			data nvml.EventData
			ret  nvml.Return
		}
		wait := func() chan outcome {
			done := make(chan outcome, 1)
			go func() {
				data, ret := set.Wait(math.MaxUint32)
				done <- outcome{data, ret}
			}()
			return done
		}
		waiting := wait()
		must(t, XID(dir, On(0), 31))
		if got := <-waiting; got.ret != nvml.SUCCESS || got.data.EventData != 31 {
			t.Errorf("woken with %v, XID %d", name(got.ret), got.data.EventData)
		}
		for i := range maxEvents + 50 {
			must(t, XID(dir, On(0), 1000+i))
		}
		count, last := 0, uint64(0)
		for data, ret := set.Wait(0); ret == nvml.SUCCESS; data, ret = set.Wait(0) {
			count, last = count+1, data.EventData
		}
		if count != maxEvents-1 || last != 1000+maxEvents+50-1 {
			t.Errorf("%d events after the overflow, the last %d", count, last)
		}
		waiting = wait()
		must(t, RemoveDriver(dir))
		if got := <-waiting; got.ret != nvml.ERROR_DRIVER_NOT_LOADED {
			t.Errorf("the driver's end: %v", name(got.ret))
		}
	})
}
