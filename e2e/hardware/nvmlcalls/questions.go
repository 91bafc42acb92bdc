package nvmlcalls

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ask is a question with one value.
func ask[T any](function string, get func() (T, nvml.Return)) question {
	return askWith(function, "", get)
}

func askWith[T any](function, arguments string, get func() (T, nvml.Return)) question {
	return question{function, arguments, func() (any, nvml.Return) {
		value, code := get()
		return value, code
	}}
}

// two is a question with two values.
func two[A, B any](function string, get func() (A, B, nvml.Return)) question {
	return question{function, "", func() (any, nvml.Return) {
		a, b, code := get()
		return []any{a, b}, code
	}}
}

func machine(lib nvml.Interface) []question {
	handle := func(get func() (nvml.Device, nvml.Return)) func() (bool, nvml.Return) {
		return func() (bool, nvml.Return) {
			device, code := get()
			return device != nil, code
		}
	}
	return []question{
		ask("nvmlSystemGetDriverVersion", lib.SystemGetDriverVersion),
		ask("nvmlSystemGetNVMLVersion", lib.SystemGetNVMLVersion),
		ask("nvmlSystemGetCudaDriverVersion_v2", lib.SystemGetCudaDriverVersion_v2),
		ask("nvmlSystemGetDriverBranch", lib.SystemGetDriverBranch),
		ask("nvmlSystemGetConfComputeState", lib.SystemGetConfComputeState),
		ask("nvmlSystemGetConfComputeCapabilities", lib.SystemGetConfComputeCapabilities),
		ask("nvmlDeviceGetCount_v2", lib.DeviceGetCount),
		askWith("nvmlDeviceGetHandleByIndex_v2", "99", handle(func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByIndex(99) })),
		askWith("nvmlDeviceGetHandleByIndex_v2", "-1", handle(func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByIndex(-1) })),
		askWith("nvmlDeviceGetHandleByUUID", "of no GPU", handle(func() (nvml.Device, nvml.Return) {
			return lib.DeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
		})),
		askWith("nvmlDeviceGetHandleByUUID", "no UUID", handle(func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByUUID("x") })),
		askWith("nvmlDeviceGetHandleByPciBusId_v2", "of no GPU", handle(func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByPciBusId("0000:FF:1F.0") })),
		ask("nvmlUnitGetCount", lib.UnitGetCount),
	}
}

func identity(d nvml.Device) []question {
	return []question{
		ask("nvmlDeviceGetName", d.GetName),
		ask("nvmlDeviceGetUUID", d.GetUUID),
		ask("nvmlDeviceGetSerial", d.GetSerial),
		ask("nvmlDeviceGetIndex", d.GetIndex),
		ask("nvmlDeviceGetMinorNumber", d.GetMinorNumber),
		ask("nvmlDeviceGetPciInfo_v3", d.GetPciInfo),
		ask("nvmlDeviceGetBrand", d.GetBrand),
		ask("nvmlDeviceGetArchitecture", d.GetArchitecture),
		two("nvmlDeviceGetCudaComputeCapability", d.GetCudaComputeCapability),
		ask("nvmlDeviceGetNumGpuCores", d.GetNumGpuCores),
		ask("nvmlDeviceGetBoardPartNumber", d.GetBoardPartNumber),
		ask("nvmlDeviceGetVbiosVersion", d.GetVbiosVersion),
		ask("nvmlDeviceGetInforomImageVersion", d.GetInforomImageVersion),
		ask("nvmlDeviceGetModuleId", d.GetModuleId),
		ask("nvmlDeviceGetPlatformInfo", d.GetPlatformInfo),
		ask("nvmlDeviceGetGspFirmwareVersion", d.GetGspFirmwareVersion),
		two("nvmlDeviceGetGspFirmwareMode", d.GetGspFirmwareMode),
		ask("nvmlDeviceGetVirtualizationMode", d.GetVirtualizationMode),
		ask("nvmlDeviceGetHostVgpuMode", d.GetHostVgpuMode),
		ask("nvmlDeviceGetAddressingMode", d.GetAddressingMode),
		ask("nvmlDeviceGetNumaNodeId", d.GetNumaNodeId),
		ask("nvmlDeviceGetBusType", d.GetBusType),
		ask("nvmlDeviceGetIrqNum", d.GetIrqNum),
		ask("nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration),
		ask("nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth),
		ask("nvmlDeviceGetAttributes_v2", d.GetAttributes),
	}
}

func memory(d nvml.Device) []question {
	all := []question{
		ask("nvmlDeviceGetMemoryInfo", d.GetMemoryInfo),
		ask("nvmlDeviceGetMemoryInfo_v2", d.GetMemoryInfo_v2),
		ask("nvmlDeviceGetBAR1MemoryInfo", d.GetBAR1MemoryInfo),
		two("nvmlDeviceGetEccMode", d.GetEccMode),
		question{"nvmlDeviceGetRemappedRows", "", func() (any, nvml.Return) {
			corrected, uncorrected, pending, failed, code := d.GetRemappedRows()
			return []any{corrected, uncorrected, pending, failed}, code
		}},
		ask("nvmlDeviceGetRowRemapperHistogram", d.GetRowRemapperHistogram),
		ask("nvmlDeviceGetRetiredPagesPendingStatus", d.GetRetiredPagesPendingStatus),
	}
	for cause := range nvml.PAGE_RETIREMENT_CAUSE_COUNT {
		all = append(all, askWith("nvmlDeviceGetRetiredPages", fmt.Sprint(cause), func() ([]uint64, nvml.Return) { return d.GetRetiredPages(cause) }))
	}
	for kind := range nvml.MEMORY_ERROR_TYPE_COUNT {
		for since := range nvml.ECC_COUNTER_TYPE_COUNT {
			all = append(all, askWith("nvmlDeviceGetTotalEccErrors", fmt.Sprintf("%d, %d", kind, since), func() (uint64, nvml.Return) { return d.GetTotalEccErrors(kind, since) }))
		}
	}
	return all
}

func modes(d nvml.Device) []question {
	return []question{
		two("nvmlDeviceGetMigMode", d.GetMigMode),
		ask("nvmlDeviceGetMaxMigDeviceCount", d.GetMaxMigDeviceCount),
		ask("nvmlDeviceGetComputeMode", d.GetComputeMode),
		ask("nvmlDeviceGetPersistenceMode", d.GetPersistenceMode),
		ask("nvmlDeviceGetAccountingMode", d.GetAccountingMode),
		question{"nvmlDeviceIsMigDeviceHandle", "", func() (any, nvml.Return) { is, code := d.IsMigDeviceHandle(); return is, code }},
		question{"nvmlDeviceGetAPIRestriction", "0", func() (any, nvml.Return) {
			state, code := d.GetAPIRestriction(nvml.RESTRICTED_API_SET_APPLICATION_CLOCKS)
			return state, code
		}},
	}
}

// profiles asks for one profile more than the header defines.
func profiles(d nvml.Device) []question {
	var all []question
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT + 1 {
		info, _ := d.GetGpuInstanceProfileInfo(enum)
		number := fmt.Sprint(enum)
		all = append(all,
			askWith("nvmlDeviceGetGpuInstanceProfileInfo", number, func() (nvml.GpuInstanceProfileInfo, nvml.Return) { return d.GetGpuInstanceProfileInfo(enum) }),
			askWith("nvmlDeviceGetGpuInstanceProfileInfoV", number+", version 2", d.GetGpuInstanceProfileInfoV(enum).V2),
			askWith("nvmlDeviceGetGpuInstanceProfileInfoV", number+", version 3", d.GetGpuInstanceProfileInfoV(enum).V3),
		)
		if info.Id == 0 && info.SliceCount == 0 {
			continue
		}
		all = append(all,
			askWith("nvmlDeviceGetGpuInstancePossiblePlacements_v2", number, func() ([]nvml.GpuInstancePlacement, nvml.Return) {
				return d.GetGpuInstancePossiblePlacements(&info)
			}),
			askWith("nvmlDeviceGetGpuInstanceRemainingCapacity", number, func() (int, nvml.Return) { return d.GetGpuInstanceRemainingCapacity(&info) }),
			askWith("nvmlDeviceGetGpuInstances", number, func() (int, nvml.Return) {
				found, code := d.GetGpuInstances(&info)
				return len(found), code
			}),
		)
	}
	return all
}

// instances asks for MIG devices, which a GPU that is not in MIG mode does not have.
func instances(d nvml.Device) []question {
	return []question{
		askWith("nvmlDeviceGetGpuInstanceById", "1", func() (bool, nvml.Return) {
			instance, code := d.GetGpuInstanceById(1)
			return instance != nil, code
		}),
		askWith("nvmlDeviceGetMigDeviceHandleByIndex", "0", func() (bool, nvml.Return) {
			device, code := d.GetMigDeviceHandleByIndex(0)
			return device != nil, code
		}),
		ask("nvmlDeviceGetGpuInstanceId", d.GetGpuInstanceId),
		ask("nvmlDeviceGetComputeInstanceId", d.GetComputeInstanceId),
		ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", func() (bool, nvml.Return) {
			device, code := d.GetDeviceHandleFromMigDeviceHandle()
			return device != nil, code
		}),
	}
}

// links asks for one link more than the header defines.
func links(d nvml.Device) []question {
	var all []question
	for link := range nvml.NVLINK_MAX_LINKS + 1 {
		number := fmt.Sprint(link)
		all = append(all,
			askWith("nvmlDeviceGetNvLinkState", number, func() (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(link) }),
			askWith("nvmlDeviceGetNvLinkRemotePciInfo_v2", number, func() (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(link) }),
			askWith("nvmlDeviceGetNvLinkRemoteDeviceType", number, func() (nvml.IntNvLinkDeviceType, nvml.Return) { return d.GetNvLinkRemoteDeviceType(link) }),
			askWith("nvmlDeviceGetNvLinkVersion", number, func() (uint32, nvml.Return) { return d.GetNvLinkVersion(link) }),
		)
	}
	return append(all,
		ask("nvmlDeviceGetGpuFabricInfo", d.GetGpuFabricInfo),
		askWith("nvmlDeviceGetGpuFabricInfoV", "2", d.GetGpuFabricInfoV().V2),
		askWith("nvmlDeviceGetGpuFabricInfoV", "3", d.GetGpuFabricInfoV().V3),
		askWith("nvmlDeviceGetTopologyCommonAncestor", "itself", func() (nvml.GpuTopologyLevel, nvml.Return) { return d.GetTopologyCommonAncestor(d) }),
	)
}

func sensors(d nvml.Device) []question {
	all := []question{
		ask("nvmlDeviceGetUtilizationRates", d.GetUtilizationRates),
		two("nvmlDeviceGetDecoderUtilization", d.GetDecoderUtilization),
		two("nvmlDeviceGetEncoderUtilization", d.GetEncoderUtilization),
		askWith("nvmlDeviceGetTemperature", "0", func() (uint32, nvml.Return) { return d.GetTemperature(nvml.TEMPERATURE_GPU) }),
		ask("nvmlDeviceGetPowerUsage", d.GetPowerUsage),
		ask("nvmlDeviceGetEnforcedPowerLimit", d.GetEnforcedPowerLimit),
		ask("nvmlDeviceGetPowerManagementLimit", d.GetPowerManagementLimit),
		ask("nvmlDeviceGetTotalEnergyConsumption", d.GetTotalEnergyConsumption),
		ask("nvmlDeviceGetPerformanceState", d.GetPerformanceState),
		ask("nvmlDeviceGetCurrentClocksEventReasons", d.GetCurrentClocksEventReasons),
		ask("nvmlDeviceGetCurrentClocksThrottleReasons", d.GetCurrentClocksThrottleReasons),
		ask("nvmlDeviceGetSupportedClocksEventReasons", d.GetSupportedClocksEventReasons),
		ask("nvmlDeviceGetPcieReplayCounter", d.GetPcieReplayCounter),
		ask("nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration),
		ask("nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth),
		ask("nvmlDeviceGetFanSpeed", d.GetFanSpeed),
		ask("nvmlDeviceGetNumFans", d.GetNumFans),
	}
	for clock := range nvml.CLOCK_COUNT {
		all = append(all, askWith("nvmlDeviceGetClockInfo", fmt.Sprint(clock), func() (uint32, nvml.Return) { return d.GetClockInfo(nvml.ClockType(clock)) }))
	}
	return all
}

// fields asks for every field, each in a call of its own, because one that is refused could refuse the others.
func fields(d nvml.Device) []question {
	var all []question
	for id := uint32(1); id < nvml.FI_MAX; id++ {
		all = append(all, askWith("nvmlDeviceGetFieldValues", fmt.Sprint(id), func() (any, nvml.Return) {
			values := []nvml.FieldValue{{FieldId: id}}
			code := d.GetFieldValues(values)
			return values[0], code
		}))
	}
	return all
}

func processes(d nvml.Device) []question {
	count := func(get func() ([]nvml.ProcessInfo, nvml.Return)) func() (int, nvml.Return) {
		return func() (int, nvml.Return) {
			found, code := get()
			return len(found), code
		}
	}
	return []question{
		ask("nvmlDeviceGetComputeRunningProcesses_v3", count(d.GetComputeRunningProcesses)),
		ask("nvmlDeviceGetGraphicsRunningProcesses_v3", count(d.GetGraphicsRunningProcesses)),
		ask("nvmlDeviceGetMPSComputeRunningProcesses_v3", count(d.GetMPSComputeRunningProcesses)),
		ask("nvmlDeviceGetProcessUtilization", func() (int, nvml.Return) {
			found, code := d.GetProcessUtilization(0)
			return len(found), code
		}),
	}
}

// events asks with an event set in which the GPU is registered, and waits once for nothing. The process ends with the set.
func events(lib nvml.Interface, d nvml.Device) []question {
	set, created := lib.EventSetCreate()
	return []question{
		ask("nvmlDeviceGetSupportedEventTypes", d.GetSupportedEventTypes),
		ask("nvmlEventSetCreate", func() (bool, nvml.Return) { return set != nil, created }),
		{"nvmlDeviceRegisterEvents", "critical XIDs", func() (any, nvml.Return) { return nil, d.RegisterEvents(nvml.EventTypeXidCriticalError, set) }},
		{"nvmlDeviceRegisterEvents", "all types", func() (any, nvml.Return) { return nil, d.RegisterEvents(^uint64(0), set) }},
		{"nvmlEventSetWait_v2", "0 ms", func() (any, nvml.Return) {
			data, code := set.Wait(0)
			return data.EventType, code
		}},
	}
}
