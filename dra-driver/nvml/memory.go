package nvml

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"
)

// totalMemory queries the memory of the GPU in bytes, 0 for one whose memory is the system's. From driver 615 on, NVML reports to a process whose cgroup has a
// limit only that much of the GPU (nvml.h, nvmlDeviceGetMemoryLimits_v1): such a limit of this process's cgroup is removed first. The limits of the
// cgroups above have no effect on what is reported.
func totalMemory(ctx context.Context, a *calls, d nvml.Device) uint64 {
	if group := ownCgroup(); group != "" {
		// A cgroup without a limit, and one that the driver does not find, are no failures.
		limits, limited := queryExtra(a, "nvmlDeviceGetMemoryLimits_v1", func() (nvml.MemoryLimits_v1, nvml.Return) { return d.GetMemoryLimits_v1(group) },
			nvml.ERROR_NOT_FOUND, nvml.ERROR_OPERATING_SYSTEM, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_UNKNOWN)
		if limited && limits.HardLimit < math.MaxUint64 {
			removeLimit(ctx, d, group, limits.HardLimit)
		}
	}
	info, _ := queryExtra(a, "nvmlDeviceGetMemoryInfo", d.GetMemoryInfo)
	return info.Total
}

// removeLimit removes the limit of the cgroup. If that fails, less memory is published than the GPU has, and the log has what to do.
func removeLimit(ctx context.Context, d nvml.Device, group string, bytes uint64) {
	logger := klog.FromContext(ctx).WithValues("cgroup", group, "limitBytes", bytes)
	if err := newCallError("nvmlDeviceSetMemoryLimits_v1", d.SetMemoryLimits_v1(group, 0, math.MaxUint64)); err != nil {
		logger.Error(err, "The agent's cgroup has a limit of GPU memory, which is published as the memory of the GPU: exclude the agent from whatever sets "+
			"limits, or load the module nvidia with NVreg_RegistryDwords=RmMemacctMode=0")
		return
	}
	logger.Info("Removed a limit of GPU memory from the agent's cgroup, since NVML reports it as the memory of the GPU")
}

// ownCgroup returns the path of this process's cgroup in the hierarchy of version 2; empty if it cannot be read.
func ownCgroup() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return cgroupVersion2(string(text))
}

// cgroupVersion2 returns the path that /proc/self/cgroup has in the hierarchy of version 2; empty on a host that has version 1 only.
func cgroupVersion2(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join("/sys/fs/cgroup", path)
		}
	}
	return ""
}
