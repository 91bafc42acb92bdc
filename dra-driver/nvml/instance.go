package nvml

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// List reads the MIG devices of the GPU from the hardware, ordered by start. A GPU instance without a compute instance
// has CI NoCompute. A GPU with MIG disabled has none.
func (s *Session) List(ctx context.Context, gpuName string) ([]gpu.Instance, error) {
	return withGPU(ctx, s, gpuName, (*gpuInfo).instances)
}

// instances reads the MIG devices, ordered by start. If one of them is destroyed between the list and its queries, its
// handle is rejected and the list is read again: an instance is left out only if it no longer exists.
func (f *gpuInfo) instances() ([]gpu.Instance, error) {
	var list []gpu.Instance
	var err error
	for range 3 {
		list, err = f.instancesOnce()
		if !failedWith(err, nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT) {
			break
		}
	}
	return list, err
}

func (f *gpuInfo) instancesOnce() ([]gpu.Instance, error) {
	var a calls
	if f.modes(&a).current != gpu.ModeEnabled {
		return nil, a.err
	}
	var all []gpu.Instance
	for _, profile := range f.profiles {
		handles := query(&a, "nvmlDeviceGetGpuInstances", func() ([]nvml.GpuInstance, nvml.Return) {
			return f.handle.GetGpuInstances(&profile.info)
		})
		for _, handle := range handles {
			instance, err := f.instance(handle)
			if err != nil {
				return nil, err
			}
			all = append(all, instance)
		}
	}
	if a.err != nil {
		return nil, a.err
	}
	slices.SortFunc(all, func(a, b gpu.Instance) int {
		return cmp.Or(cmp.Compare(a.Placement.Start, b.Placement.Start), cmp.Compare(a.GI, b.GI))
	})
	return all, nil
}

// instance reads one GPU instance. If it has several compute instances, which Tessera never creates, the one with the
// lowest id is returned.
func (f *gpuInfo) instance(gi nvml.GpuInstance) (gpu.Instance, error) {
	var a calls
	info := query(&a, "nvmlGpuInstanceGetInfo", gi.GetInfo)
	instance := gpu.Instance{
		GPU:       f.name,
		Placement: gpu.Placement{Profile: int(info.ProfileId), Start: int(info.Placement.Start), Size: int(info.Placement.Size)},
		GI:        int(info.Id),
		CI:        gpu.NoCompute,
	}
	parts := computeInstances(&a, gi)
	if a.err != nil || len(parts) == 0 {
		return instance, a.err
	}
	part := slices.MinFunc(parts, func(a, b computeInstance) int { return cmp.Compare(a.info.Id, b.info.Id) })
	mig, err := f.migDevice(part.info, instance.GI)
	if err != nil {
		return instance, err
	}
	instance.CI = int(part.info.Id)
	instance.UUID = query(&a, "nvmlDeviceGetUUID of a MIG device", mig.GetUUID)
	instance.Multiprocessors = int(query(&a, "nvmlDeviceGetAttributes", mig.GetAttributes).MultiprocessorCount)
	return instance, a.err
}

// computeInstance is a compute instance and its NVML information.
type computeInstance struct {
	handle nvml.ComputeInstance
	info   nvml.ComputeInstanceInfo
}

// computeInstances reads all compute instances of the GPU instance.
func computeInstances(a *calls, gi nvml.GpuInstance) []computeInstance {
	var all []computeInstance
	for _, profile := range computeProfiles(a, gi) {
		handles := query(a, "nvmlGpuInstanceGetComputeInstances", func() ([]nvml.ComputeInstance, nvml.Return) {
			return gi.GetComputeInstances(&profile)
		})
		for _, handle := range handles {
			all = append(all, computeInstance{handle, query(a, "nvmlComputeInstanceGetInfo", handle.GetInfo)})
		}
	}
	return all
}

// computeProfiles reads the compute instance profiles that fit into the GPU instance.
func computeProfiles(a *calls, gi nvml.GpuInstance) []nvml.ComputeInstanceProfileInfo {
	var all []nvml.ComputeInstanceProfileInfo
	for profile := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, has := queryIndexed(a, "nvmlGpuInstanceGetComputeInstanceProfileInfo", func() (nvml.ComputeInstanceProfileInfo, nvml.Return) {
			return gi.GetComputeInstanceProfileInfo(profile, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		})
		if has && info.InstanceCount > 0 {
			all = append(all, info)
		}
	}
	return all
}

// migDevice returns the MIG device of the compute instance. Drivers return its handle in the field that the header
// documents as the parent device; if a driver follows the header, the MIG devices of the GPU are searched.
func (f *gpuInfo) migDevice(info nvml.ComputeInstanceInfo, gi int) (nvml.Device, error) {
	if isMIG, code := info.Device.IsMigDeviceHandle(); code == nvml.SUCCESS && isMIG {
		return info.Device, nil
	}
	var a calls
	for index := range query(&a, "nvmlDeviceGetMaxMigDeviceCount", f.handle.GetMaxMigDeviceCount) {
		mig, code := f.handle.GetMigDeviceHandleByIndex(index)
		if code == nvml.ERROR_NOT_FOUND {
			continue
		}
		a.err = newCallError("nvmlDeviceGetMigDeviceHandleByIndex", code)
		if a.err != nil {
			break
		}
		if query(&a, "nvmlDeviceGetGpuInstanceId", mig.GetGpuInstanceId) == gi &&
			query(&a, "nvmlDeviceGetComputeInstanceId", mig.GetComputeInstanceId) == int(info.Id) && a.err == nil {
			return mig, nil
		}
	}
	if a.err != nil {
		return nil, a.err
	}
	return nil, fmt.Errorf("the GPU has no MIG device for compute instance %d of GPU instance %d", info.Id, gi)
}
