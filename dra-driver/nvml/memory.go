package nvml

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// totalMemory queries the memory of the GPU in bytes, 0 for one whose memory is the system's. From driver 615 on, NVML reports to a process whose cgroup has a
// limit only that much of the GPU (nvml.h, nvmlDeviceGetMemoryLimits_v1): such a limit of this process's cgroup is removed first. The limits of the
// cgroups above have no effect on what is reported.
func totalMemory(ctx context.Context, a *calls, d nvml.Device, own string) uint64 {
	if own != "" {
		// A cgroup without a limit, and one that the driver does not find, are no failures.
		limits, limited := queryExtra(a, "nvmlDeviceGetMemoryLimits_v1", func() (nvml.MemoryLimits_v1, nvml.Return) { return d.GetMemoryLimits_v1(own) },
			nvml.ERROR_NOT_FOUND, nvml.ERROR_OPERATING_SYSTEM, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_UNKNOWN)
		if limited && limits.HardLimit < gpu.NoMemoryLimit {
			removeLimit(ctx, d, own, limits.HardLimit)
		}
	}
	info, _ := queryExtra(a, "nvmlDeviceGetMemoryInfo", d.GetMemoryInfo)
	return info.Total
}

// shareable returns the memory that the claims of a shared shape can have together; 0 if the driver does not report what it reserves.
func shareable(a *calls, d nvml.Device, total uint64) uint64 {
	info, reported := queryExtra(a, "nvmlDeviceGetMemoryInfo_v2", d.GetMemoryInfo_v2)
	if !reported {
		return 0
	}
	return gpu.ShareableOf(total, info.Reserved)
}

// removeLimit removes the limit of the cgroup. If that fails, less memory is published than the GPU has, and the log has what to do.
func removeLimit(ctx context.Context, d nvml.Device, group string, bytes uint64) {
	logger := klog.FromContext(ctx).WithValues("cgroup", group, "limitBytes", bytes)
	if err := newCallError("nvmlDeviceSetMemoryLimits_v1", d.SetMemoryLimits_v1(group, 0, gpu.NoMemoryLimit)); err != nil {
		logger.Error(err, "The agent's cgroup has a limit of GPU memory, which is published as the memory of the GPU: exclude the agent from whatever sets "+
			"limits, or load the module nvidia with NVreg_RegistryDwords=RmMemacctMode=0")
		return
	}
	logger.Info("Removed a limit of GPU memory from the agent's cgroup, since NVML reports it as the memory of the GPU")
}

// readLimiter determines how the driver limits memory, which it decides when its module is loaded: once per connection, with the first GPU that
// responds and has MIG disabled. Only Read calls it.
func (n *node) readLimiter(c cgroups, gpus []gpu.GPU) {
	for i := 0; i < len(gpus) && n.limiter == nil; i++ {
		known := n.devices[i].info.Load()
		if gpus[i].Lost || gpus[i].Mode == gpu.ModeEnabled || known == nil {
			continue
		}
		n.limiter = new(limiterOf(known.handle, c))
	}
}

// limiterOf returns the controller through which the driver limits the memory of the GPU; none if this process's group does not have it, because then
// other containers do not have it either. The driver answers a query without a limit like one that it does not support, so that only a change shows the
// difference (memacct.c of NVIDIA's open kernel modules): "no limit" is set, which this group has anyway.
func limiterOf(d nvml.Device, c cgroups) gpu.Limiter {
	limiter := gpu.LimitedByMisc
	if c.regions() {
		limiter = gpu.LimitedByDmem
	}
	if !c.has(string(limiter)) || d.SetMemoryLimits_v1(c.own, 0, gpu.NoMemoryLimit) != nvml.SUCCESS {
		return gpu.NotLimited
	}
	return limiter
}

// LimitMemory limits the memory in bytes that the processes of the control group can allocate on the GPU, gpu.NoMemoryLimit for all of it, and reads the
// limit back. folder is the group's folder in the host's hierarchy as this process sees it. An error means that the limit may not be in effect.
func (s *Session) LimitMemory(ctx context.Context, gpuName, folder string, bytes uint64) error {
	_, err := withGPU(ctx, s, gpuName, func(f *gpuInfo) (noValue, error) {
		if err := newCallError("nvmlDeviceSetMemoryLimits_v1", f.handle.SetMemoryLimits_v1(folder, 0, bytes)); err != nil {
			return noValue{}, err
		}
		return noValue{}, readBack(f.handle, folder, bytes)
	})
	if err != nil {
		return fmt.Errorf("limit the memory of %s on %s to %d bytes: %w", folder, gpuName, bytes, err)
	}
	return nil
}

// MemoryLimit returns the limit in bytes of the control group on the GPU, gpu.NoMemoryLimit if it has none, and what its processes have allocated.
func (s *Session) MemoryLimit(ctx context.Context, gpuName, folder string) (limit, used uint64, err error) {
	limits, err := withGPU(ctx, s, gpuName, func(f *gpuInfo) (nvml.MemoryLimits_v1, error) {
		limits, code := f.handle.GetMemoryLimits_v1(folder)
		if code == nvml.ERROR_NOT_FOUND {
			return nvml.MemoryLimits_v1{HardLimit: gpu.NoMemoryLimit}, nil
		}
		return limits, newCallError("nvmlDeviceGetMemoryLimits_v1", code)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory limit of %s on %s: %w", folder, gpuName, err)
	}
	return limits.HardLimit, limits.CurrentUsed, nil
}

// readBack returns an error unless the limit is in effect: with dmem, a change that the kernel ignores succeeds (kernel/cgroup/dmem.c).
func readBack(d nvml.Device, folder string, bytes uint64) error {
	limits, code := d.GetMemoryLimits_v1(folder)
	if code == nvml.ERROR_NOT_FOUND && bytes == gpu.NoMemoryLimit {
		return nil
	}
	if err := newCallError("nvmlDeviceGetMemoryLimits_v1", code); err != nil {
		return err
	}
	if limits.HardLimit != bytes || limits.SoftLimit != 0 {
		return errors.New("not in effect: the driver has " + limitText(limits.HardLimit))
	}
	return nil
}

func limitText(bytes uint64) string {
	if bytes == math.MaxUint64 {
		return "no limit"
	}
	return fmt.Sprintf("a limit of %d bytes", bytes)
}
