package fakegpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestReboot: instances are gone, MIG is off on Hopper and stays on Ampere, the machine has another
// boot id, and injected faults are still there.
func TestReboot(t *testing.T) {
	dir, client := inClient()
	if !client {
		runClient(t, installAll(t, Spec{Machine: "mixed16"}))
		return
	}
	lib := start(t, dir)
	hopper, ampere := gpuAt(t, lib, 0), gpuAt(t, lib, 3)
	enable(t, hopper)
	createCompute(t, create(t, hopper, 0, 0, 8), 4)
	create(t, ampere, 19, 6, 1)
	must(t, Lose(dir, 5))
	bootID := read(t, ProcRoot(dir), "sys/kernel/random/boot_id")
	must(t, Reboot(dir))
	if again := read(t, ProcRoot(dir), "sys/kernel/random/boot_id"); again == bootID {
		t.Error("the boot id is the same")
	}
	state, err := Read(dir)
	must(t, err)
	for _, g := range state.GPUs {
		if len(g.Instances) > 0 {
			t.Errorf("GPU %d still has %v", g.Index, g.Instances)
		}
	}
	if state.GPUs[0].MIG || !state.GPUs[3].MIG {
		t.Errorf("MIG is %t on Hopper and %t on Ampere", state.GPUs[0].MIG, state.GPUs[3].MIG)
	}
	if state.GPUs[5].Lost {
		t.Error("a lost GPU did not come back")
	}
	_, ret := hopper.GetName()
	expect(t, "the old session", ret, nvml.ERROR_DRIVER_NOT_LOADED)
	succeed(t, "Shutdown", lib.Shutdown())
	succeed(t, "Init", lib.Init())
}

func read(t *testing.T, root, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	must(t, err)
	return string(data)
}

// TestDriverComesAndGoes: without the driver its files are absent and NVML cannot be loaded; with it
// everything is as before except for the instances.
func TestDriverComesAndGoes(t *testing.T) {
	dir, client := inClient()
	if !client {
		dir = installAll(t, Spec{Machine: "h100x2"})
		must(t, RemoveDriver(dir))
		runClient(t, dir)
		return
	}
	lib := nvml.New(nvml.WithLibraryPath(Library(dir)))
	expect(t, "Init without the driver", lib.Init(), nvml.ERROR_LIBRARY_NOT_FOUND)
	for _, gone := range []string{Library(dir), filepath.Join(ProcRoot(dir), "driver/nvidia/version")} {
		if _, err := os.Stat(gone); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	if devices := read(t, ProcRoot(dir), "devices"); strings.Contains(devices, "nvidia") {
		t.Errorf("/proc/devices:\n%s", devices)
	}
	must(t, RestoreDriver(dir))
	succeed(t, "Init", lib.Init())
	gpuAt(t, lib, 1)
	if devices := read(t, ProcRoot(dir), "devices"); !strings.Contains(devices, "122 nvidia-caps\n") {
		t.Errorf("/proc/devices:\n%s", devices)
	}
	must(t, RemoveDriver(dir))
	_, ret := lib.DeviceGetCount()
	expect(t, "the session of the driver that is gone", ret, nvml.ERROR_DRIVER_NOT_LOADED)
	must(t, Reboot(dir))
	if state, err := Read(dir); err != nil || state.DriverLoaded {
		t.Errorf("after a reboot without the driver: %+v, %v", state, err)
	}
	succeed(t, "Shutdown", lib.Shutdown())
}

// TestDriverVersion replaces the driver under a session. The new one is of an old branch: it reports
// that everywhere, and lacks the newer functions. It is read from another process, because go-nvml
// never unloads a library that it has called.
func TestDriverVersion(t *testing.T) {
	const version, after = "535.183.06", "after"
	if dir, client := inClient(); client {
		lib := start(t, dir)
		if os.Getenv(roleVariable) == after {
			checkOldDriver(t, lib, version)
			return
		}
		succeed(t, "a newer function", lookup(lib, "nvmlDeviceGetGpuFabricInfoV"))
		must(t, SetDriverVersion(t.Context(), dir, version))
		_, ret := lib.DeviceGetCount()
		expect(t, "the old session", ret, nvml.ERROR_DRIVER_NOT_LOADED)
		return
	}
	dir := installAll(t, Spec{Machine: "h100x2"})
	runClient(t, dir)
	for path, want := range map[string]string{"driver/nvidia/version": version, "devices": "120 nvidia-frontend\n"} {
		if got := read(t, ProcRoot(dir), path); !strings.Contains(got, want) {
			t.Errorf("/proc/%s lacks %q:\n%s", path, want, got)
		}
	}
	libraries, err := filepath.Glob(filepath.Join(DriverRoot(dir), libraryFolder, "*.so.*.*"))
	must(t, err)
	if len(libraries) != 2+len(companions())+1 {
		t.Errorf("libraries after the change: %v", libraries)
	}
	runClient(t, dir, roleVariable+"="+after)
}

func checkOldDriver(t *testing.T, lib nvml.Interface, version string) {
	got, ret := lib.SystemGetDriverVersion()
	succeed(t, "SystemGetDriverVersion", ret)
	cuda, ret := lib.SystemGetCudaDriverVersion()
	succeed(t, "SystemGetCudaDriverVersion", ret)
	if got != version || cuda != 12020 {
		t.Errorf("driver %s, CUDA %d", got, cuda)
	}
	expect(t, "a newer function", lookup(lib, "nvmlDeviceGetGpuFabricInfoV"), nvml.ERROR_FUNCTION_NOT_FOUND)
	succeed(t, "an older function", lookup(lib, "nvmlDeviceGetGpuInstancePossiblePlacements_v2"))
	_, ret = gpuAt(t, lib, 0).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX)
	expect(t, "a newer constant", ret, nvml.ERROR_INVALID_ARGUMENT)
}

func lookup(lib nvml.Interface, symbol string) nvml.Return {
	if err := lib.Extensions().LookupSymbol(symbol); err != nil {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return nvml.SUCCESS
}

// TestForeignState: a state of another layout is refused, not misread.
func TestForeignState(t *testing.T) {
	dir, client := inClient()
	if client {
		lib := nvml.New(nvml.WithLibraryPath(Library(dir)))
		expect(t, "Init", lib.Init(), nvml.ERROR_LIB_RM_VERSION_MISMATCH)
		return
	}
	for what, spoil := range map[string]func(path string) error{
		"version": func(path string) error {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			_, err = file.WriteAt([]byte{1, 2, 3}, 8)
			return err
		},
		"size": func(path string) error { return os.Truncate(path, 4096) },
	} {
		dir = install(t, Spec{Machine: "t4x1"})
		must(t, spoil(statePath(dir, "580.65.06")))
		runClient(t, dir)
		if _, err := Read(dir); err == nil {
			t.Errorf("Read accepted a state of another %s", what)
		}
	}
}
