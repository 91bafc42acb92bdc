package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// limited is a machine of driver 615 in a client process, with a tree of control groups.
type limited struct {
	t       *testing.T
	dir     string
	backend MemoryBackend
	lib     nvml.Interface
	device  nvml.Device
	program string
}

// withLimits runs f with each backend.
func withLimits(t *testing.T, f func(l limited)) {
	for name, backend := range map[string]MemoryBackend{"misc": Misc, "dmem": Dmem} {
		t.Run(name, func(t *testing.T) {
			withNVML(t, Spec{Machine: "h100x2", DriverVersion: "615.71.09"}, func(t *testing.T, dir string, lib nvml.Interface) {
				must(t, SetMemoryBackend(dir, backend))
				f(limited{t, dir, backend, lib, gpuAt(t, lib, 0), cudaClient(t)})
			})
		})
	}
}

func (l limited) group(path string, controllers ...string) string {
	l.t.Helper()
	folder, err := AddGroup(l.dir, path, controllers...)
	must(l.t, err)
	return folder
}

// both makes a group with both controllers.
func (l limited) both(path string) string {
	l.t.Helper()
	return l.group(path, "misc", "dmem")
}

func (l limited) limit(folder string, mib uint64, want nvml.Return) {
	l.t.Helper()
	expect(l.t, fmt.Sprintf("limit %s to %d MiB", folder, mib), l.device.SetMemoryLimits_v1(folder, 0, mib<<20), want)
}

// mib reads the limit and what counts against it.
func (l limited) mib(folder string) (hard, used uint64) {
	l.t.Helper()
	limits, code := l.device.GetMemoryLimits_v1(folder)
	succeed(l.t, "GetMemoryLimits", code)
	return limits.HardLimit >> 20, limits.CurrentUsed >> 20
}

func inGroup(folder string) string { return "FAKE_NVML_CGROUP=" + folder }

// run runs the CUDA program in a group and returns its last line.
func (l limited) run(folder string, verbs ...string) string {
	l.t.Helper()
	lines := cuda(l.t, l.program, l.dir, []string{inGroup(folder)}, verbs...)
	return lines[len(lines)-1]
}

const outOfMemory = "cuMemAlloc_v2: error 2"

// A group's processes get what the limit leaves together, contexts included, and see the limit as the memory of the GPU. What a process held is free when
// it has ended.
func TestLimitedGroup(t *testing.T) {
	withLimits(t, func(l limited) {
		folder := l.both("pods/a/leaf")
		other := l.both("pods/b/leaf")
		l.limit(folder, 1024, nvml.SUCCESS)
		for verb, want := range map[string]string{
			"memory": "768 of 1024 MiB", "allocate=768": "allocated", "allocate=769": outOfMemory, "fill": outOfMemory,
			"managed=2000": "allocated", // it is not counted
		} {
			if got := l.run(folder, verb); got != want {
				l.t.Errorf("%s: %q, want %q", verb, got, want)
			}
		}
		release := hold(l.t, l.program, l.dir, inGroup(folder))
		if got := l.run(folder, "allocate=600"); got != outOfMemory {
			l.t.Errorf("with a second process: %q", got)
		}
		if hard, used := l.mib(folder); hard != 1024 || used != 256 {
			l.t.Errorf("limit %d MiB, %d used", hard, used)
		}
		release()
		if got := l.run(folder, "allocate=600"); got != "allocated" {
			l.t.Errorf("after its end: %q", got)
		}
		if got := l.run(other, "memory"); got != "81079 of 81079 MiB" {
			l.t.Errorf("another group: %q", got)
		}
		if got := l.run(folder, "allocate=100", "memory"); got != "668 of 1024 MiB" {
			l.t.Errorf("after an allocation: %q", got)
		}
	})
}

// A process in a group below counts against a limit above, but does not see it. With misc, "no limit" of the group below removes it.
func TestLimitOfAGroupAbove(t *testing.T) {
	withLimits(t, func(l limited) {
		above, below := l.both("pods/a"), l.both("pods/a/leaf")
		l.limit(above, 1024, nvml.SUCCESS)
		if got := l.run(below, "allocate=2000"); got != outOfMemory {
			l.t.Errorf("%q", got)
		}
		if got := l.run(below, "memory"); got != "81079 of 81079 MiB" {
			l.t.Errorf("%q", got)
		}
		succeed(l.t, "clear", l.device.SetMemoryLimits_v1(below, 0, nvml.DEVICE_MEMORY_LIMIT_MAX))
		want := map[MemoryBackend]string{Misc: "allocated", Dmem: outOfMemory}[l.backend]
		if got := l.run(below, "allocate=2000"); got != want {
			l.t.Errorf("with no limit below: %q, want %q", got, want)
		}
	})
}

// With dmem, who attaches a GPU that nothing else uses is charged the driver's reserve, 480 MiB here, and does not have the GPU where that does not fit.
func TestReserveOfTheFirstUser(t *testing.T) {
	withLimits(t, func(l limited) {
		folder, small := l.both("pods/a/leaf"), l.both("pods/b/leaf")
		l.limit(folder, 1024, nvml.SUCCESS)
		l.limit(small, 400, nvml.SUCCESS)
		first, tooSmall := "768 of 1024 MiB", "144 of 400 MiB"
		if l.backend == Dmem {
			first, tooSmall = "288 of 1024 MiB", "81079 of 81079 MiB" // the other GPU
		}
		seen := func(what, folder, want string) {
			l.t.Helper()
			if got := l.run(folder, "memory"); got != want {
				l.t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		seen("with a session of NVML", small, "144 of 400 MiB")
		succeed(l.t, "Shutdown", l.lib.Shutdown())
		seen("first user", folder, first)
		seen("first user, too small", small, tooSmall)
		release := hold(l.t, l.program, l.dir, inGroup(l.both("pods/c/leaf")))
		seen("with another user", folder, "768 of 1024 MiB")
		release()
		succeed(l.t, "Init", l.lib.Init())
		l.device = gpuAt(l.t, l.lib, 0)
		succeed(l.t, "SetPersistenceMode", l.device.SetPersistenceMode(nvml.FEATURE_ENABLED))
		succeed(l.t, "Shutdown", l.lib.Shutdown())
		seen("in persistence mode", small, "144 of 400 MiB")
		succeed(l.t, "Init", l.lib.Init())
	})
}

// isHandle reports whether the line is a handle of memory: 64 bytes.
func isHandle(line string) bool { return len(line) == 128 }

// Memory that a process imports is charged to the group of the exporter, as long as one of the two holds it.
func TestImportedMemory(t *testing.T) {
	withLimits(t, func(l limited) {
		from, to := l.both("pods/a/leaf"), l.both("pods/b/leaf")
		l.limit(from, 1024, nvml.SUCCESS)
		l.limit(to, 512, nvml.SUCCESS)
		handle, releaseExporter := keep(l.t, l.program, l.dir, []string{inGroup(from)}, "export=700", isHandle)
		used := func(what string, want map[string]uint64) {
			l.t.Helper()
			for folder, mib := range want {
				if _, used := l.mib(folder); used != mib {
					l.t.Errorf("%s: %d MiB used in %s, want %d", what, used, folder, mib)
				}
			}
		}
		used("exported", map[string]uint64{from: 956, to: 0})
		ready := func(line string) bool { return strings.HasSuffix(line, " of 512 MiB") }
		seen, releaseImporter := keep(l.t, l.program, l.dir, []string{inGroup(to)}, "import="+handle, ready)
		if seen != "256 of 512 MiB" {
			l.t.Errorf("the importer sees %q", seen)
		}
		used("imported", map[string]uint64{from: 956, to: 256})
		releaseExporter()
		used("the exporter has ended", map[string]uint64{from: 700, to: 256})
		releaseImporter()
		used("both have ended", map[string]uint64{from: 0, to: 0})
		handle, releaseExporter = keep(l.t, l.program, l.dir, nil, "export=1", isHandle)
		defer releaseExporter()
		if got := l.run(to, "import="+strings.Repeat("0", len(handle))); got != "cuIpcOpenMemHandle_v2: error 1" {
			l.t.Errorf("no handle: %q", got)
		}
	})
}

// A limit below what is allocated is refused by misc; with dmem the call succeeds, and nothing changes.
func TestLimitBelowUse(t *testing.T) {
	withLimits(t, func(l limited) {
		folder := l.both("leaf")
		l.limit(folder, 1024, nvml.SUCCESS)
		defer hold(l.t, l.program, l.dir, inGroup(folder))()
		l.limit(folder, 255, map[MemoryBackend]nvml.Return{Misc: nvml.ERROR_INVALID_ARGUMENT, Dmem: nvml.SUCCESS}[l.backend])
		if hard, _ := l.mib(folder); hard != 1024 {
			l.t.Errorf("limit %d MiB", hard)
		}
		l.limit(folder, 256, nvml.SUCCESS)
	})
}

// Without the controller the driver charges a group above: misc accepts a limit that never binds.
func TestLimitWithoutController(t *testing.T) {
	withLimits(t, func(l limited) {
		folder := l.group("leaf", "memory")
		l.limit(folder, 512, map[MemoryBackend]nvml.Return{Misc: nvml.SUCCESS, Dmem: nvml.ERROR_NOT_FOUND}[l.backend])
		if got := l.run(folder, "allocate=2000"); got != "allocated" {
			l.t.Errorf("%q", got)
		}
	})
}

func TestLimitArguments(t *testing.T) {
	withLimits(t, func(l limited) {
		folder, missing := l.both("leaf"), filepath.Join(l.dir, "missing")
		must(l.t, os.WriteFile(filepath.Join(l.dir, "file"), nil, 0o644))
		_, code := l.device.GetMemoryLimits_v1(folder)
		expect(l.t, "read without a limit", code, map[MemoryBackend]nvml.Return{Misc: nvml.ERROR_NOT_SUPPORTED, Dmem: nvml.ERROR_NOT_FOUND}[l.backend])
		expect(l.t, "soft above hard", l.device.SetMemoryLimits_v1(folder, 2, 1), nvml.ERROR_INVALID_ARGUMENT)
		l.limit(folder, 81560, nvml.ERROR_INVALID_ARGUMENT)
		l.limit(missing, 1, nvml.ERROR_OPERATING_SYSTEM)
		l.limit(filepath.Join(l.dir, "file"), 1, nvml.ERROR_OPERATING_SYSTEM)
		l.limit("leaf", 1, nvml.ERROR_OPERATING_SYSTEM)
		l.limit(Hierarchy(l.dir), 1, nvml.ERROR_NOT_SUPPORTED) // the root
		l.limit(folder, 81559, nvml.SUCCESS)
		if text, err := os.ReadFile(filepath.Join(folder, "dmem.max")); l.backend == Dmem && !strings.HasPrefix(string(text), "nvidia/") {
			l.t.Errorf("dmem.max: %q, %v", text, err)
		}
		limits, err := MemoryLimits(l.dir)
		must(l.t, err)
		if diff := cmp.Diff([]MemoryLimit{{Folder: folder, Hard: 81559 << 20}}, limits); diff != "" {
			l.t.Errorf("limits (-want +got):\n%s", diff)
		}
		enableTo(l.t, l.device, nil, nvml.SUCCESS)
		l.limit(folder, 1, nvml.ERROR_NOT_SUPPORTED)
	})
}

// misc keeps the limit of a group that was removed, and a new group can inherit it. One that was set to "no limit" does not.
func TestInheritedLimit(t *testing.T) {
	withLimits(t, func(l limited) {
		if l.backend == Dmem {
			return // the kernel's entries end with the group
		}
		folder := l.both("leaf")
		must(l.t, InheritLimit(l.dir, 0, 1<<30))
		if got := l.run(folder, "allocate=2000"); got != outOfMemory {
			l.t.Errorf("%q", got)
		}
		succeed(l.t, "clear", l.device.SetMemoryLimits_v1(folder, 0, nvml.DEVICE_MEMORY_LIMIT_MAX))
		if got := l.run(folder, "allocate=2000"); got != "allocated" {
			l.t.Errorf("with no limit: %q", got)
		}
	})
}

// The limits of misc are in the driver's memory, those of dmem in the kernel's.
func TestLimitsAreGoneAfterABoot(t *testing.T) {
	withLimits(t, func(l limited) {
		l.limit(l.both("pods/a"), 1024, nvml.SUCCESS)
		must(t, Reboot(l.dir))
		limits, err := MemoryLimits(l.dir)
		must(t, err)
		if len(limits) > 0 {
			t.Errorf("limits %+v", limits)
		}
	})
}

// A driver has limits from branch 615 on; the kernel decides how it keeps them.
func TestMemoryBackend(t *testing.T) {
	for versions, want := range map[[2]string]MemoryBackend{
		{"580.65.06", "6.18.0"}: NoLimits, {"615.71.09", "6.8.0-79-generic"}: Misc, {"615.71.09", "6.14.0"}: Dmem, {"615.71.09", "7.0.1"}: Dmem,
	} {
		if got := memoryBackend(versions[0], versions[1]); got != want {
			t.Errorf("%v: %d, want %d", versions, got, want)
		}
	}
}
