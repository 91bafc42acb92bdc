package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/internal/host/cgroup"
)

const limiting = "615.71.09"

// installIn is install with a driver of the version, whose session is in a control group with these controllers.
func installIn(t *testing.T, version string, backend fakegpu.MemoryBackend, controllers ...string) (s *Session, dir string) {
	t.Helper()
	s, dir = install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2", DriverVersion: version})
	must(t, fakegpu.SetMemoryBackend(dir, backend))
	own, err := fakegpu.AddGroup(dir, "agent", controllers...)
	must(t, err)
	t.Setenv("FAKE_NVML_CGROUP", own)
	s.cgroups = cgroups{hierarchy: fakegpu.Hierarchy(dir), own: own}
	must(t, s.Reopen(t.Context()))
	return s, dir
}

// A limit of the agent's cgroup does not change the memory that is published (driver 615, nvml.h: nvmlDeviceGetMemoryLimits_v1). If it cannot be removed,
// the GPU is published with what can be used of it.
func TestMemoryOfALimitedReader(t *testing.T) {
	const limit = 4 << 30
	whole := gputest.Node(t, "h100x2").GPUs[0].MemoryBytes
	for name, test := range map[string]struct {
		backend fakegpu.MemoryBackend
		code    nvml.Return
		want    uint64
	}{
		"removed":             {fakegpu.Dmem, nvml.SUCCESS, whole},
		"removed, with misc":  {fakegpu.Misc, nvml.SUCCESS, whole},
		"the removal refused": {fakegpu.Dmem, nvml.ERROR_NO_PERMISSION, limit},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := installIn(t, limiting, test.backend, "misc", "dmem")
			d := handle(t, s)
			if code := d.SetMemoryLimits_v1(s.cgroups.own, 0, limit); code != nvml.SUCCESS {
				t.Fatalf("limit %s: %v", s.cgroups.own, code)
			}
			if info, code := d.GetMemoryInfo(); code != nvml.SUCCESS || info.Total != limit {
				t.Fatalf("with a limit NVML reports %d bytes, %v, want %d", info.Total, code, uint64(limit))
			}
			if test.code != nvml.SUCCESS {
				must(t, fakegpu.Fail(dir, "nvmlDeviceSetMemoryLimits_v1", uint32(test.code), fakegpu.Forever))
			}
			must(t, s.Reopen(t.Context())) // what is read before the first Read
			if got := read(t, s); got.Lost || got.MemoryBytes != test.want {
				t.Errorf("%d bytes, lost: %v, want %d", got.MemoryBytes, got.Lost, test.want)
			}
		})
	}
}

// The limiter is known where the driver has limits and this process's group has the controller. A driver with dmem has regions there.
func TestLimiter(t *testing.T) {
	for name, test := range map[string]struct {
		version     string
		backend     fakegpu.MemoryBackend
		controllers string
		want        gpu.Limiter
	}{
		"misc":                          {limiting, fakegpu.Misc, "cpu misc", gpu.LimitedByMisc},
		"dmem":                          {limiting, fakegpu.Dmem, "misc dmem", gpu.LimitedByDmem},
		"misc, the kernel has dmem too": {limiting, fakegpu.Misc, "misc dmem", gpu.LimitedByMisc},
		"dmem without the controller":   {limiting, fakegpu.Dmem, "misc", gpu.NotLimited},
		"misc without the controller":   {limiting, fakegpu.Misc, "dmem", gpu.NotLimited},
		"limits switched off":           {limiting, fakegpu.NoLimits, "misc dmem", gpu.NotLimited},
		"an older driver":               {"580.65.06", fakegpu.Misc, "misc dmem", gpu.NotLimited},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := installIn(t, test.version, test.backend, strings.Fields(test.controllers)...)
			if got := read(t, s).Limiter; got != test.want {
				t.Errorf("limiter %q, want %q", got, test.want)
			}
		})
	}
	s, _ := installIn(t, limiting, fakegpu.Misc, "misc")
	s.cgroups.own = "" // as on a host with cgroup version 1
	if got := read(t, s).Limiter; got != gpu.NotLimited {
		t.Errorf("without a control group: %q", got)
	}
}

// While a GPU has MIG enabled, the driver limits nothing on it: what another GPU shows applies to all.
func TestLimiterWithMIG(t *testing.T) {
	s, _ := installIn(t, limiting, fakegpu.Misc, "misc")
	for i, name := range []string{read(t, s).Name(), readNode(t, s).GPUs[1].Name()} {
		must(t, s.Reopen(t.Context()))
		must(t, s.SetMode(t.Context(), name, gpu.ModeEnabled))
		want := []gpu.Limiter{gpu.LimitedByMisc, gpu.NotLimited}[i]
		for _, g := range readNode(t, s).GPUs {
			if g.Limiter != want {
				t.Errorf("%d GPUs with MIG: %s: limiter %q, want %q", i+1, g.Name(), g.Limiter, want)
			}
		}
	}
	must(t, s.SetMode(t.Context(), readNode(t, s).GPUs[0].Name(), gpu.ModeDisabled))
	if got := read(t, s).Limiter; got != gpu.LimitedByMisc {
		t.Errorf("afterward: %q", got)
	}
}

func TestLimitMemory(t *testing.T) {
	const limit = 8 << 30
	for name, backend := range map[string]fakegpu.MemoryBackend{"misc": fakegpu.Misc, "dmem": fakegpu.Dmem} {
		t.Run(name, func(t *testing.T) {
			s, dir := installIn(t, limiting, backend, "misc", "dmem")
			folder, err := fakegpu.AddGroup(dir, "pod", "misc", "dmem")
			must(t, err)
			name := read(t, s).Name()
			set := func(bytes uint64) error { return s.LimitMemory(t.Context(), name, folder, bytes) }
			for _, bytes := range []uint64{limit, limit / 2, gpu.NoMemoryLimit, gpu.NoMemoryLimit, limit} {
				must(t, set(bytes))
			}
			limits, err := fakegpu.MemoryLimits(dir)
			must(t, err)
			if last := limits[len(limits)-1]; last.Folder != folder || last.Hard != limit || last.Soft != 0 {
				t.Errorf("limits %+v", limits)
			}
			if err := s.LimitMemory(t.Context(), name, filepath.Join(dir, "missing"), limit); err == nil || !strings.Contains(err.Error(), "missing") {
				t.Errorf("without a group: %v", err)
			}
			if err := set(1 << 50); err == nil {
				t.Error("more than the GPU has is accepted")
			}
			must(t, fakegpu.Fail(dir, "nvmlDeviceGetMemoryLimits_v1", uint32(nvml.ERROR_UNKNOWN), 1))
			if err := set(limit); err == nil || !strings.Contains(err.Error(), "nvmlDeviceGetMemoryLimits_v1") {
				t.Errorf("a limit that cannot be read back: %v", err)
			}
		})
	}
}

// The kernel ignores a limit below what is allocated, and the call succeeds: only reading it back shows that.
func TestLimitMemoryReadsBack(t *testing.T) {
	s, dir := installIn(t, limiting, fakegpu.Dmem, "dmem")
	folder, err := fakegpu.AddGroup(dir, "pod", "dmem")
	must(t, err)
	name := read(t, s).Name()
	must(t, s.LimitMemory(t.Context(), name, folder, 8<<30))
	must(t, fakegpu.IgnoreLimits(dir))
	if err := s.LimitMemory(t.Context(), name, folder, 4<<30); err == nil || !strings.Contains(err.Error(), "not in effect: the driver has a limit of 8589934592 bytes") {
		t.Errorf("%v", err)
	}
	if err := s.LimitMemory(t.Context(), name, folder, gpu.NoMemoryLimit); err == nil {
		t.Error("the removal counts as effective")
	}
	s.Close()
	if err := s.LimitMemory(t.Context(), name, folder, 1); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("without a driver: %v", err)
	}
}

// Drivers before 615 have no limits, and those of other cgroups have no effect.
func TestMemoryWithoutLimits(t *testing.T) {
	want := gputest.Node(t, "h100x2").GPUs[0].MemoryBytes
	for version, code := range map[string]nvml.Return{"580.65.06": nvml.ERROR_FUNCTION_NOT_FOUND, limiting: nvml.SUCCESS} {
		s, dir := installIn(t, version, fakegpu.Misc, "misc")
		other, err := fakegpu.AddGroup(dir, "other", "misc")
		must(t, err)
		if got := handle(t, s).SetMemoryLimits_v1(other, 0, 4<<30); got != code {
			t.Errorf("driver %s: limit another cgroup: %v, want %v", version, got, code)
		}
		must(t, s.Reopen(t.Context()))
		if got := read(t, s); got.MemoryBytes != want {
			t.Errorf("driver %s: %d bytes, want %d", version, got.MemoryBytes, want)
		}
		s.Close()
	}
}

// handle returns NVML's handle of the first GPU.
func handle(t *testing.T, s *Session) nvml.Device {
	t.Helper()
	d, code := s.node.library.DeviceGetHandleByIndex(0)
	if code != nvml.SUCCESS {
		t.Fatal(code)
	}
	return d
}

func readNode(t *testing.T, s *Session) gpu.Node {
	t.Helper()
	node, err := s.Read(t.Context())
	must(t, err)
	return node
}

// The root of a hierarchy is no group, one in a namespace is.
func TestOwnCgroup(t *testing.T) {
	top := t.TempDir()
	own, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	path, ok := cgroup.Unified(string(own))
	if !ok || path != "/" {
		t.Skip("this process is not in the root of control groups of version 2")
	}
	if got := newCgroups(top); got.own != "" {
		t.Errorf("own group %q in a root", got.own)
	}
	must(t, os.WriteFile(filepath.Join(top, "cgroup.type"), nil, 0o600))
	if got := newCgroups(top); got.own != top {
		t.Errorf("own group %q, want %s", got.own, top)
	}
}
