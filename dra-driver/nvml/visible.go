package nvml

import (
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// VisibleGPU is a GPU that a container has, as NVML shows it there.
type VisibleGPU struct {
	// Index is the GPU's number in NVML, UUID and Product are empty if the GPU does not respond.
	Index         int
	UUID, Product string
	// MIGMode is whether the GPU is in MIG mode: then only its MIG devices compute, and Instances are those that the container has.
	MIGMode   bool
	Instances []VisibleInstance
	// ExclusiveProcess is whether the compute mode permits the contexts of one process only.
	ExclusiveProcess bool
	// FreeBytes is the memory that no process uses.
	FreeBytes uint64
	// Err is why the GPU does not respond.
	Err error
}

// VisibleInstance is a MIG device that a container has.
type VisibleInstance struct {
	UUID string
	// FreeBytes is the memory that no process uses.
	FreeBytes uint64
}

// Name returns the GPU for messages.
func (g VisibleGPU) Name() string {
	if g.UUID == "" {
		return fmt.Sprintf("GPU %d", g.Index)
	}
	return fmt.Sprintf("%s (%s)", g.UUID, g.Product)
}

// visible serializes the calls of Visible: a process has one open library.
var visible sync.Mutex

// Visible returns the GPUs that this process may use, in NVML's order. library is the path or name of libnvidia-ml. No Session may be open. It is safe for
// concurrent use.
// nvmlDeviceGetCount counts GPUs of other containers too, for which the handle returns NO_PERMISSION (nvml.h); they are omitted.
func Visible(library string) ([]VisibleGPU, error) {
	visible.Lock()
	defer visible.Unlock()
	lib, err := connect(library)
	if err != nil {
		return nil, err
	}
	defer disconnect(lib)
	var a calls
	count := query(&a, "nvmlDeviceGetCount", lib.DeviceGetCount)
	var all []VisibleGPU
	for index := range count {
		var each calls
		handle, has := queryExcept(&each, "nvmlDeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByIndex(index) },
			nvml.ERROR_NO_PERMISSION)
		if has || each.err != nil {
			all = append(all, visibleGPU(&each, index, handle))
		}
	}
	return all, a.err
}

func visibleGPU(a *calls, index int, handle nvml.Device) VisibleGPU {
	if a.err != nil {
		return VisibleGPU{Index: index, Err: a.err}
	}
	g := VisibleGPU{
		Index: index, UUID: query(a, "nvmlDeviceGetUUID", handle.GetUUID), Product: query(a, "nvmlDeviceGetName", handle.GetName),
		FreeBytes: query(a, "nvmlDeviceGetMemoryInfo", handle.GetMemoryInfo).Free,
	}
	mode, _ := queryOptional(a, "nvmlDeviceGetMigMode", func() (int, nvml.Return) {
		current, _, code := handle.GetMigMode()
		return current, code
	})
	compute, _ := queryOptional(a, "nvmlDeviceGetComputeMode", handle.GetComputeMode)
	g.MIGMode, g.ExclusiveProcess = mode == nvml.DEVICE_MIG_ENABLE, compute == nvml.COMPUTEMODE_EXCLUSIVE_PROCESS
	if g.MIGMode {
		g.Instances = visibleInstances(a, handle)
	}
	g.Err = a.err
	return g
}

// visibleInstances returns the MIG devices of a GPU that this process may use.
func visibleInstances(a *calls, gpu nvml.Device) []VisibleInstance {
	var all []VisibleInstance
	for index := range query(a, "nvmlDeviceGetMaxMigDeviceCount", gpu.GetMaxMigDeviceCount) {
		mig, has := queryExcept(a, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) { return gpu.GetMigDeviceHandleByIndex(index) },
			nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NO_PERMISSION)
		if has {
			free := query(a, "nvmlDeviceGetMemoryInfo", mig.GetMemoryInfo).Free
			all = append(all, VisibleInstance{UUID: query(a, "nvmlDeviceGetUUID", mig.GetUUID), FreeBytes: free})
		}
	}
	return all
}
