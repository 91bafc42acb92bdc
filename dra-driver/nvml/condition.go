package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// remapsRows is the first major compute capability whose GPUs remap rows of memory; earlier ones retire pages.
const remapsRows = 8

// rowConditions reads the row remapping, or page retirement, that is pending until the next reset or has failed.
func (f *gpuInfo) rowConditions(a *calls) []gpu.Condition {
	if f.gpu.ComputeMajor < remapsRows {
		pending, has := querySensor(a, "nvmlDeviceGetRetiredPagesPendingStatus", f.handle.GetRetiredPagesPendingStatus)
		if !has {
			return nil
		}
		return []gpu.Condition{{Signal: gpu.SignalRetirePending, Present: pending == nvml.FEATURE_ENABLED}}
	}
	type state struct{ pending, failed bool }
	now, has := querySensor(a, "nvmlDeviceGetRemappedRows", func() (state, nvml.Return) {
		_, _, pending, failed, code := f.handle.GetRemappedRows()
		return state{pending, failed}, code
	})
	if !has {
		// nvml.h: nvmlDeviceGetRemappedRows is not supported while there are MIG devices.
		now, has = querySensor(a, "nvmlDeviceGetFieldValues", func() (state, nvml.Return) {
			numbers, code := fieldNumbers(f.handle, nvml.FI_DEV_REMAPPED_PENDING, nvml.FI_DEV_REMAPPED_FAILURE)
			return state{numbers[0] != 0, numbers[1] != 0}, code
		})
	}
	if !has {
		return nil
	}
	return []gpu.Condition{{Signal: gpu.SignalRemapPending, Present: now.pending}, {Signal: gpu.SignalRemapFailed, Present: now.failed}}
}

// recoveryActions are the actions that a driver can require, and what Tessera does about them.
var recoveryActions = map[nvml.DeviceGpuRecoveryAction]struct {
	signal gpu.Signal
	detail string
}{
	nvml.GPU_RECOVERY_ACTION_GPU_RESET:           {gpu.SignalResetNeeded, ""},
	nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:     {gpu.SignalResetNeeded, "after the peers of the GPU have stopped to use it"},
	nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:         {gpu.SignalRebootNeeded, ""},
	nvml.GPU_RECOVERY_ACTION_BUS_RESET:           {gpu.SignalRebootNeeded, "a reset of its PCIe bus would do"},
	nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT:       {gpu.SignalRebootNeeded, "the whole system, not only a virtual machine"},
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:           {gpu.SignalRecovery, "the peers of the GPU must stop to use it"},
	nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: {gpu.SignalRecovery, "the recovery of its IMEX domain"},
}

// recoveryConditions reads which action the driver requires; one that this release does not support is reported too. Nil for drivers that have no actions.
func (f *gpuInfo) recoveryConditions(a *calls) []gpu.Condition {
	action, has := querySensor(a, "nvmlDeviceGetFieldValues", func() (nvml.DeviceGpuRecoveryAction, nvml.Return) {
		numbers, code := fieldNumbers(f.handle, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)
		return nvml.DeviceGpuRecoveryAction(numbers[0]), code
	})
	if !has {
		return nil
	}
	required, known := recoveryActions[action]
	if !known && action != nvml.GPU_RECOVERY_ACTION_NONE {
		required.signal, required.detail = gpu.SignalRecovery, fmt.Sprintf("action %d, which this release of Tessera does not support", uint32(action))
	}
	var conditions []gpu.Condition
	for _, signal := range []gpu.Signal{gpu.SignalResetNeeded, gpu.SignalRebootNeeded, gpu.SignalRecovery} {
		condition := gpu.Condition{Signal: signal}
		if signal == required.signal {
			condition.Present, condition.Detail = true, required.detail
		}
		conditions = append(conditions, condition)
	}
	return conditions
}

// linkConditions counts the active NVLinks; nil for a GPU without NVLinks, and if the state of one cannot be read.
func (f *gpuInfo) linkConditions(a *calls) []gpu.Condition {
	up := len(f.activeNVLinks(a))
	if len(f.links) == 0 || len(a.omitted) > 0 {
		return nil
	}
	return []gpu.Condition{{Signal: gpu.SignalNVLink, Links: up, Detail: fmt.Sprintf("%d NVLinks are up", up)}}
}

// fabricConditions reads the state of the GPU in its NVLink fabric. The driver's report of an incorrect fabric
// configuration is ignored: a machine without a partition or its own chassis does not make the GPU unhealthy.
//
// A GPU that has never joined is no evidence of a fault, nor of its end: until a partition is active, the GPUs of a shared
// fabric do not join, and a GPU of such a board that a virtual machine has alone never does, although it computes. joined has the
// GPUs of which this process has seen that they had joined.
func (f *gpuInfo) fabricConditions(a *calls, joined *gpuSet) []gpu.Condition {
	info, has := querySensor(a, "nvmlDeviceGetGpuFabricInfoV", f.handle.GetGpuFabricInfoV().V2)
	if !has || info.State == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED {
		return nil
	}
	if info.State == nvml.GPU_FABRIC_STATE_COMPLETED {
		joined.add(f.name)
	}
	if !joined.has(f.name) {
		return nil
	}
	detail := describeFabricError(info)
	return []gpu.Condition{{Signal: gpu.SignalFabric, Present: detail != "", Detail: detail}}
}

// describeFabricError describes the fault of the fabric; empty if there is none.
func describeFabricError(info nvml.GpuFabricInfo_v2) string {
	switch {
	case info.State == nvml.GPU_FABRIC_STATE_NOT_STARTED:
		return "the GPU had joined the fabric and has not started to join it again"
	case info.State != nvml.GPU_FABRIC_STATE_COMPLETED:
		return "the GPU had joined the fabric and has not joined it again yet"
	case nvml.Return(info.Status) != nvml.SUCCESS:
		return fmt.Sprintf("the GPU failed to join the fabric: %v", newCallError("its status", nvml.Return(info.Status)))
	}
	for _, sign := range []struct {
		shift, width, is uint32
		means            string
	}{
		{nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE, "a route is not healthy"},
		{nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_TRUE, "a route is being recovered"},
		{nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ACCESS_TIMEOUT_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_TRUE, "an access that timed out is being recovered"},
		{nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_DEGRADED_BW, nvml.GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE, "its bandwidth is degraded"},
	} {
		if info.HealthMask>>sign.shift&sign.width == sign.is {
			return sign.means
		}
	}
	return ""
}
