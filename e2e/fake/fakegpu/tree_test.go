package fakegpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// TestMIGMinors compares the table with published values of real machines.
func TestMIGMinors(t *testing.T) {
	t.Parallel()
	lines := strings.Split(migMinors(), "\n")
	found := map[string]bool{}
	for _, line := range lines {
		found[line] = true
	}
	for _, want := range []string{
		"config 1", "monitor 2", "gpu0/gi1/access 12", "gpu3/gi3/ci3/access 439", "gpu6/gi11/ci5/access 918", "gpu31/gi14/ci7/access 4322",
	} {
		if !found[want] {
			t.Errorf("mig-minors lacks %q", want)
		}
	}
	if want := 2 + 32*15*9 + 1; len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	dir := installAll(t, Spec{Machine: "gb200x4", Node: "tray"})
	for _, test := range []struct{ root, path, want string }{
		{ProcRoot(dir), "driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"},
		{ProcRoot(dir), "driver/nvidia/params", "ModifyDeviceFiles: 1\n"},
		{ProcRoot(dir), "driver/nvidia/gpus/0018:01:00.0/information", "GPU UUID: \t " + catalog.UUID("tray", 2) + "\n"},
		{ProcRoot(dir), "driver/nvidia/capabilities/mig/monitor", "DeviceFileMinor: 2\nDeviceFileMode: 292\nDeviceFileModify: 1\n"},
		{ProcRoot(dir), "devices", "120 nvidia\n120 nvidia-modeset\n120 nvidiactl\n121 nvidia-uvm\n122 nvidia-caps\n123 nvidia-caps-imex-channels\n"},
		{SysRoot(dir), "bus/pci/devices/0019:01:00.0/numa_node", "1\n"},
		{SysRoot(dir), "bus/pci/devices/0019:01:00.0/local_cpulist", "32-63\n"},
		{SysRoot(dir), "bus/pci/devices/0008:01:00.0/vendor", "0x10de\n"},
		{SysRoot(dir), "bus/pci/devices/0008:01:00.0/device", "0x2941\n"},
		{DriverRoot(dir), "lib/firmware/nvidia/580.65.06/gsp_ga10x.bin", "fake"},
	} {
		if got := read(t, test.root, test.path); !strings.Contains(got, test.want) {
			t.Errorf("%s is %q, want %q", test.path, got, test.want)
		}
	}
	place, err := filepath.EvalSymlinks(filepath.Join(SysRoot(dir), "bus/pci/devices/0009:01:00.0"))
	must(t, err)
	if want := filepath.Join(SysRoot(dir), "devices/pci0009:00/0009:00:01.0/0009:01:00.0"); place != want {
		t.Errorf("GPU 1 is at %s, want %s", place, want)
	}
	library, err := filepath.EvalSymlinks(filepath.Join(DriverRoot(dir), libraryFolder, "libcuda.so"))
	must(t, err)
	if filepath.Base(library) != "libcuda.so.580.65.06" {
		t.Errorf("libcuda.so leads to %s", library)
	}
	if nodes, err := os.ReadDir(filepath.Join(DevRoot(dir), "dev")); err != nil || len(nodes) > 0 {
		t.Errorf("device nodes %v, %v, want none before nvidia-modprobe", nodes, err)
	}
	must(t, MakeNodes(dir))
	for path, want := range map[string]uint64{
		"nvidiactl": unix.Mkdev(120, 255), "nvidia-modeset": unix.Mkdev(120, 254), "nvidia3": unix.Mkdev(120, 3),
		"nvidia-uvm": unix.Mkdev(121, 0), "nvidia-uvm-tools": unix.Mkdev(121, 1), "nvidia-caps/nvidia-cap1": unix.Mkdev(122, 1),
	} {
		var stat unix.Stat_t
		must(t, unix.Stat(filepath.Join(DevRoot(dir), "dev", path), &stat))
		if stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != want {
			t.Errorf("%s: mode %o, device %x, want %x", path, stat.Mode, stat.Rdev, want)
		}
	}
	if err := Install(t.Context(), dir, Spec{Machine: "t4x1"}); err == nil {
		t.Error("a machine was installed over another")
	}
}

// TestRefusedSpecs: a spec that cannot be installed leaves no files.
func TestRefusedSpecs(t *testing.T) {
	t.Parallel()
	for what, spec := range map[string]Spec{
		"an unknown machine": {Machine: "h100x3"},
		"no version":         {Machine: "t4x1", DriverVersion: "latest"},
	} {
		dir := filepath.Join(t.TempDir(), "machine")
		if err := InstallDriver(t.Context(), dir, spec); err == nil {
			t.Errorf("%s was accepted", what)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s left something behind: %v", what, err)
		}
	}
}
