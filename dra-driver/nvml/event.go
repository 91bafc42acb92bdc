package nvml

import (
	"context"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// wholeGPU is the GPU instance id of an event that concerns the whole GPU (nvmlEventData_t).
const wholeGPU = 0xFFFFFFFF

// event converts NVML's event into the model's; false if it is not an XID or its GPU is unknown.
func (n *node) event(ctx context.Context, data nvml.EventData) (gpu.Event, bool) {
	if data.EventType != nvml.EventTypeXidCriticalError {
		return gpu.Event{}, false
	}
	of := n.owner(data.Device)
	if of == nil {
		klog.FromContext(ctx).Info("XID of an unknown GPU ignored", "xid", data.EventData)
		return gpu.Event{}, false
	}
	e := gpu.Event{GPU: of.name, XID: int(data.EventData), At: time.Now()}
	if data.GpuInstanceId != wholeGPU {
		e.Placement = of.placement(int(data.GpuInstanceId))
	}
	return e, true
}

// owner returns the GPU with the handle; nil if there is none. NVML has one handle per GPU; if a driver returns another
// handle, the UUID identifies the GPU.
func (n *node) owner(handle nvml.Device) *gpuInfo {
	uuid := ""
	for _, byUUID := range []bool{false, true} {
		if byUUID {
			uuid, _ = handle.GetUUID()
		}
		for _, d := range n.devices {
			known := d.info.Load()
			if known != nil && (known.handle == handle || byUUID && known.gpu.UUID == uuid) {
				return known
			}
		}
	}
	return nil
}

// placement returns the placement of a GPU instance; zero when MIG is disabled or the instance no longer exists.
func (f *gpuInfo) placement(gi int) gpu.Placement {
	var a calls
	handle := query(&a, "nvmlDeviceGetGpuInstanceById", func() (nvml.GpuInstance, nvml.Return) { return f.handle.GetGpuInstanceById(gi) })
	if a.err != nil {
		return gpu.Placement{}
	}
	info := query(&a, "nvmlGpuInstanceGetInfo", handle.GetInfo)
	if a.err != nil {
		return gpu.Placement{}
	}
	return gpu.Placement{Profile: int(info.ProfileId), Start: int(info.Placement.Start), Size: int(info.Placement.Size)}
}
