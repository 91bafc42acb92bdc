package fakegpu

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// TestModules: a bare machine shows its GPUs on the bus and nothing of a driver; loading modules in their order adds it, unloading
// removes it.
func TestModules(t *testing.T) {
	t.Parallel()
	dir := installAll(t, Spec{Machine: "a30x4l40sx4", Bare: true, Kernel: "6.8.0-80-generic"})
	if got := read(t, ProcRoot(dir), "sys/kernel/osrelease"); got != "6.8.0-80-generic\n" {
		t.Errorf("the kernel is %q", got)
	}
	if got := read(t, SysRoot(dir), "bus/pci/devices/0000:17:00.0/vendor"); got != "0x10de\n" {
		t.Errorf("the vendor of a GPU is %q", got)
	}
	bare := func(when string) {
		t.Helper()
		for _, path := range []string{"proc/driver/nvidia/version", "driver/dev/nvidiactl", "driver/usr", "sys/module/nvidia"} {
			if _, err := os.Stat(filepath.Join(dir, path)); !os.IsNotExist(err) {
				t.Errorf("%s: %s is there: %v", when, path, err)
			}
		}
		if text := read(t, ProcRoot(dir), "modules") + read(t, ProcRoot(dir), "devices"); strings.Contains(text, "nvidia") {
			t.Errorf("%s: the kernel shows %s", when, text)
		}
	}
	bare("at first")

	refused(t, "a module before its base", Insmod(dir, UVM, "580.65.06"), unix.ENOENT)
	must(t, Insmod(dir, NVIDIA, "580.65.06"))
	refused(t, "a module twice", Insmod(dir, NVIDIA, "580.65.06"), unix.EEXIST)
	refused(t, "a module of another version", Insmod(dir, UVM, "570.124.06"), unix.EINVAL)
	must(t, Insmod(dir, UVM, "580.65.06"))
	must(t, Insmod(dir, GDRCopy, "580.65.06"))
	if got := read(t, ProcRoot(dir), "modules"); !strings.Contains(got, "nvidia 4096 2 gdrdrv,nvidia_uvm, Live 0x") {
		t.Errorf("modules: %s", got)
	}
	if got := read(t, ProcRoot(dir), "driver/nvidia/version"); !strings.Contains(got, "  580.65.06  ") {
		t.Errorf("the driver is %q", got)
	}
	if got := read(t, SysRoot(dir), "module/gdrdrv/version"); got != "580.65.06\n" {
		t.Errorf("gdrdrv is of version %q", got)
	}
	if nodes, err := filepath.Glob(filepath.Join(DevRoot(dir), "dev/*")); err != nil || len(nodes) != 1 || filepath.Base(nodes[0]) != "gdrdrv" {
		t.Errorf("device nodes %v, %v, want gdrdrv only: the kernel makes none of the driver", nodes, err)
	}
	refused(t, "the base of others", Rmmod(dir, NVIDIA), unix.EWOULDBLOCK)
	for _, m := range []Module{GDRCopy, UVM, NVIDIA} {
		must(t, Rmmod(dir, m))
	}
	bare("in the end")
	refused(t, "a module that is gone", Rmmod(dir, NVIDIA), unix.ENOENT)
}

func refused(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestModuleInUse: a process that has the driver open keeps its module loaded, whichever library opened it; a driver of another version
// finds the GPUs in the state in which the old one left them.
// the old one left them.
func TestModuleInUse(t *testing.T) {
	dir, client := inClient()
	if !client {
		runClient(t, installAll(t, Spec{Machine: "a30x4l40sx4", Bare: true}))
		return
	}
	const first, second = "570.124.06", "580.65.06"
	library := func(version string) nvml.Interface {
		root := filepath.Join(dir, version)
		must(t, WriteDriver(t.Context(), root, version))
		must(t, os.Remove(filepath.Join(root, StateFile(version))))
		must(t, os.Link(BareState(dir), filepath.Join(root, StateFile(version))))
		return nvml.New(nvml.WithLibraryPath(filepath.Join(root, libraryFolder, "libnvidia-ml.so.1")))
	}
	lib := library(first)
	expect(t, "Init without a module", lib.Init(), nvml.ERROR_DRIVER_NOT_LOADED)
	must(t, Insmod(dir, NVIDIA, second))
	expect(t, "Init with another's module", lib.Init(), nvml.ERROR_LIB_RM_VERSION_MISMATCH)
	must(t, Rmmod(dir, NVIDIA))
	must(t, Insmod(dir, NVIDIA, first))
	succeed(t, "Init", lib.Init())
	l40s := slices.IndexFunc(stateOf(t, dir).GPUs, func(g GPUState) bool { return strings.Contains(g.Product, "L40S") })
	if _, ret := gpuAt(t, lib, l40s).GetName(); ret != nvml.SUCCESS {
		t.Errorf("GetName: %v", name(ret))
	}
	refused(t, "a module that is open", Rmmod(dir, NVIDIA), unix.EWOULDBLOCK)
	if state := stateOf(t, dir); !state.DriverLoaded || state.DriverVersion != first {
		t.Errorf("after a refusal: %+v", state)
	}
	before := stateOf(t, dir).GPUs
	succeed(t, "Shutdown", lib.Shutdown())
	must(t, Rmmod(dir, NVIDIA))
	must(t, Insmod(dir, NVIDIA, second))
	for i, g := range stateOf(t, dir).GPUs {
		if g.MIG != before[i].MIG || g.UUID != before[i].UUID {
			t.Errorf("GPU %d is %+v under the new driver, was %+v", i, g, before[i])
		}
	}
	must(t, Reboot(dir))
	if loaded, err := Modules(dir); err != nil || len(loaded) > 0 {
		t.Errorf("after a power cycle %v is loaded: %v", loaded, err)
	}
}

func stateOf(t *testing.T, dir string) State {
	t.Helper()
	state, err := Read(dir)
	must(t, err)
	return state
}
