package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// A limit of the agent's cgroup does not change the memory that is published (driver 615, nvml.h: nvmlDeviceGetMemoryLimits_v1). If it cannot be removed,
// the GPU is published with what can be used of it.
func TestMemoryOfALimitedReader(t *testing.T) {
	const limit = 4 << 30
	group := ownCgroup()
	if group == "" {
		t.Skip("the kernel has no cgroup version 2")
	}
	whole := gputest.Node(t, "h100x2").GPUs[0].MemoryBytes
	for name, test := range map[string]struct {
		code nvml.Return
		want uint64
	}{
		"removed": {nvml.SUCCESS, whole},
		"refused": {nvml.ERROR_NO_PERMISSION, limit},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2", DriverVersion: "615.71.09"})
			must(t, s.Reopen(t.Context()))
			d := handle(t, s)
			if code := d.SetMemoryLimits_v1(group, 0, limit); code != nvml.SUCCESS {
				t.Fatalf("limit %s: %v", group, code)
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
			if _, code := handle(t, s).GetMemoryLimits_v1(group); (code == nvml.ERROR_NOT_FOUND) != (test.code == nvml.SUCCESS) {
				t.Errorf("the limit afterward: %v", code)
			}
		})
	}
}

// Drivers before 615 have no limits, and those of other cgroups have no effect.
func TestMemoryWithoutLimits(t *testing.T) {
	want := gputest.Node(t, "h100x2").GPUs[0].MemoryBytes
	for version, code := range map[string]nvml.Return{"580.65.06": nvml.ERROR_FUNCTION_NOT_FOUND, "615.71.09": nvml.SUCCESS} {
		s, _ := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2", DriverVersion: version})
		must(t, s.Reopen(t.Context()))
		if got := handle(t, s).SetMemoryLimits_v1(t.TempDir(), 0, 4<<30); got != code {
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

// On a host with cgroup version 1 the agent has no group of version 2, and no limit is read or removed.
func TestCgroupVersion2(t *testing.T) {
	for text, want := range map[string]string{
		"0::/kubepods.slice/pod1\n":                                "/sys/fs/cgroup/kubepods.slice/pod1",
		"4:memory:/kubepods/pod1\n1:name=systemd:/kubepods/pod1\n": "",
		"4:memory:/kubepods/pod1\n0::/system.slice\n":              "/sys/fs/cgroup/system.slice",
		"": "",
	} {
		if got := cgroupVersion2(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
