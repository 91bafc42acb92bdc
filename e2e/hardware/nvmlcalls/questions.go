package nvmlcalls

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// query is a question with one value.
func query[T any](function string, get func() (T, nvml.Return)) question {
	return queryWith(function, "", get)
}

func queryWith[T any](function, arguments string, get func() (T, nvml.Return)) question {
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
		query("nvmlSystemGetDriverVersion", lib.SystemGetDriverVersion),
		query("nvmlSystemGetNVMLVersion", lib.SystemGetNVMLVersion),
		query("nvmlSystemGetCudaDriverVersion_v2", lib.SystemGetCudaDriverVersion_v2),
		query("nvmlSystemGetDriverBranch", lib.SystemGetDriverBranch),
		query("nvmlSystemGetConfComputeState", lib.SystemGetConfComputeState),
		query("nvmlSystemGetConfComputeCapabilities", lib.SystemGetConfComputeCapabilities),
		query("nvmlDeviceGetCount_v2", lib.DeviceGetCount),
		queryWith("nvmlDeviceGetHandleByIndex_v2", "99", handle(func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByIndex(99) })),
		queryWith("nvmlDeviceGetHandleByIndex_v2", "-1", handle(func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByIndex(-1) })),
		queryWith("nvmlDeviceGetHandleByUUID", "of no GPU", handle(func() (nvml.Device, nvml.Return) {
			return lib.DeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
		})),
		queryWith("nvmlDeviceGetHandleByUUID", "no UUID", handle(func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByUUID("x") })),
		queryWith("nvmlDeviceGetHandleByPciBusId_v2", "of no GPU", handle(func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByPciBusId("0000:FF:1F.0") })),
		query("nvmlUnitGetCount", lib.UnitGetCount),
	}
}

func identity(d nvml.Device) []question {
	return []question{
		query("nvmlDeviceGetName", d.GetName),
		query("nvmlDeviceGetUUID", d.GetUUID),
		query("nvmlDeviceGetSerial", d.GetSerial),
		query("nvmlDeviceGetIndex", d.GetIndex),
		query("nvmlDeviceGetMinorNumber", d.GetMinorNumber),
		query("nvmlDeviceGetPciInfo_v3", d.GetPciInfo),
		query("nvmlDeviceGetBrand", d.GetBrand),
		query("nvmlDeviceGetArchitecture", d.GetArchitecture),
		two("nvmlDeviceGetCudaComputeCapability", d.GetCudaComputeCapability),
		query("nvmlDeviceGetNumGpuCores", d.GetNumGpuCores),
		query("nvmlDeviceGetBoardPartNumber", d.GetBoardPartNumber),
		query("nvmlDeviceGetVbiosVersion", d.GetVbiosVersion),
		query("nvmlDeviceGetInforomImageVersion", d.GetInforomImageVersion),
		query("nvmlDeviceGetModuleId", d.GetModuleId),
		query("nvmlDeviceGetPlatformInfo", d.GetPlatformInfo),
		query("nvmlDeviceGetGspFirmwareVersion", d.GetGspFirmwareVersion),
		two("nvmlDeviceGetGspFirmwareMode", d.GetGspFirmwareMode),
		query("nvmlDeviceGetVirtualizationMode", d.GetVirtualizationMode),
		query("nvmlDeviceGetHostVgpuMode", d.GetHostVgpuMode),
		query("nvmlDeviceGetAddressingMode", d.GetAddressingMode),
		query("nvmlDeviceGetNumaNodeId", d.GetNumaNodeId),
		query("nvmlDeviceGetBusType", d.GetBusType),
		query("nvmlDeviceGetIrqNum", d.GetIrqNum),
		query("nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration),
		query("nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth),
		query("nvmlDeviceGetAttributes_v2", d.GetAttributes),
	}
}

func memory(d nvml.Device) []question {
	all := []question{
		query("nvmlDeviceGetMemoryInfo", d.GetMemoryInfo),
		query("nvmlDeviceGetMemoryInfo_v2", d.GetMemoryInfo_v2),
		query("nvmlDeviceGetBAR1MemoryInfo", d.GetBAR1MemoryInfo),
		two("nvmlDeviceGetEccMode", d.GetEccMode),
		{"nvmlDeviceGetRemappedRows", "", func() (any, nvml.Return) {
			corrected, uncorrected, pending, failed, code := d.GetRemappedRows()
			return []any{corrected, uncorrected, pending, failed}, code
		}},
		query("nvmlDeviceGetRowRemapperHistogram", d.GetRowRemapperHistogram),
		query("nvmlDeviceGetRetiredPagesPendingStatus", d.GetRetiredPagesPendingStatus),
	}
	for cause := range nvml.PAGE_RETIREMENT_CAUSE_COUNT {
		all = append(all, queryWith("nvmlDeviceGetRetiredPages", fmt.Sprint(cause), func() ([]uint64, nvml.Return) { return d.GetRetiredPages(cause) }))
	}
	for kind := range nvml.MEMORY_ERROR_TYPE_COUNT {
		for since := range nvml.ECC_COUNTER_TYPE_COUNT {
			all = append(all, queryWith("nvmlDeviceGetTotalEccErrors", fmt.Sprintf("%d, %d", kind, since), func() (uint64, nvml.Return) { return d.GetTotalEccErrors(kind, since) }))
		}
	}
	return all
}

func modes(d nvml.Device) []question {
	return []question{
		two("nvmlDeviceGetMigMode", d.GetMigMode),
		query("nvmlDeviceGetMaxMigDeviceCount", d.GetMaxMigDeviceCount),
		query("nvmlDeviceGetComputeMode", d.GetComputeMode),
		query("nvmlDeviceGetPersistenceMode", d.GetPersistenceMode),
		query("nvmlDeviceGetAccountingMode", d.GetAccountingMode),
		{"nvmlDeviceIsMigDeviceHandle", "", func() (any, nvml.Return) { is, code := d.IsMigDeviceHandle(); return is, code }},
		{"nvmlDeviceGetAPIRestriction", "0", func() (any, nvml.Return) {
			state, code := d.GetAPIRestriction(nvml.RESTRICTED_API_SET_APPLICATION_CLOCKS)
			return state, code
		}},
	}
}

// profiles queries one profile more than the header defines.
func profiles(d nvml.Device) []question {
	var all []question
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT + 1 {
		info, _ := d.GetGpuInstanceProfileInfo(enum)
		number := fmt.Sprint(enum)
		all = append(all,
			queryWith("nvmlDeviceGetGpuInstanceProfileInfo", number, func() (nvml.GpuInstanceProfileInfo, nvml.Return) { return d.GetGpuInstanceProfileInfo(enum) }),
			queryWith("nvmlDeviceGetGpuInstanceProfileInfoV", number+", version 2", d.GetGpuInstanceProfileInfoV(enum).V2),
			queryWith("nvmlDeviceGetGpuInstanceProfileInfoV", number+", version 3", d.GetGpuInstanceProfileInfoV(enum).V3),
		)
		if info.Id == 0 && info.SliceCount == 0 {
			continue
		}
		all = append(all,
			queryWith("nvmlDeviceGetGpuInstancePossiblePlacements_v2", number, func() ([]nvml.GpuInstancePlacement, nvml.Return) {
				return d.GetGpuInstancePossiblePlacements(&info)
			}),
			queryWith("nvmlDeviceGetGpuInstanceRemainingCapacity", number, func() (int, nvml.Return) { return d.GetGpuInstanceRemainingCapacity(&info) }),
			queryWith("nvmlDeviceGetGpuInstances", number, func() (int, nvml.Return) {
				found, code := d.GetGpuInstances(&info)
				return len(found), code
			}),
		)
	}
	return all
}

// instances queries MIG devices, which a GPU that is not in MIG mode does not have.
func instances(d nvml.Device) []question {
	return []question{
		queryWith("nvmlDeviceGetGpuInstanceById", "1", func() (bool, nvml.Return) {
			instance, code := d.GetGpuInstanceById(1)
			return instance != nil, code
		}),
		queryWith("nvmlDeviceGetMigDeviceHandleByIndex", "0", func() (bool, nvml.Return) {
			device, code := d.GetMigDeviceHandleByIndex(0)
			return device != nil, code
		}),
		query("nvmlDeviceGetGpuInstanceId", d.GetGpuInstanceId),
		query("nvmlDeviceGetComputeInstanceId", d.GetComputeInstanceId),
		query("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", func() (bool, nvml.Return) {
			device, code := d.GetDeviceHandleFromMigDeviceHandle()
			return device != nil, code
		}),
	}
}

// links queries one link more than the header defines.
func links(d nvml.Device) []question {
	var all []question
	for link := range nvml.NVLINK_MAX_LINKS + 1 {
		number := fmt.Sprint(link)
		all = append(all,
			queryWith("nvmlDeviceGetNvLinkState", number, func() (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(link) }),
			queryWith("nvmlDeviceGetNvLinkRemotePciInfo_v2", number, func() (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(link) }),
			queryWith("nvmlDeviceGetNvLinkRemoteDeviceType", number, func() (nvml.IntNvLinkDeviceType, nvml.Return) { return d.GetNvLinkRemoteDeviceType(link) }),
			queryWith("nvmlDeviceGetNvLinkVersion", number, func() (uint32, nvml.Return) { return d.GetNvLinkVersion(link) }),
		)
	}
	return append(all,
		query("nvmlDeviceGetGpuFabricInfo", d.GetGpuFabricInfo),
		queryWith("nvmlDeviceGetGpuFabricInfoV", "2", d.GetGpuFabricInfoV().V2),
		queryWith("nvmlDeviceGetGpuFabricInfoV", "3", d.GetGpuFabricInfoV().V3),
		queryWith("nvmlDeviceGetTopologyCommonAncestor", "itself", func() (nvml.GpuTopologyLevel, nvml.Return) { return d.GetTopologyCommonAncestor(d) }),
	)
}

func sensors(d nvml.Device) []question {
	all := []question{
		query("nvmlDeviceGetUtilizationRates", d.GetUtilizationRates),
		two("nvmlDeviceGetDecoderUtilization", d.GetDecoderUtilization),
		two("nvmlDeviceGetEncoderUtilization", d.GetEncoderUtilization),
		queryWith("nvmlDeviceGetTemperature", "0", func() (uint32, nvml.Return) { return d.GetTemperature(nvml.TEMPERATURE_GPU) }),
		query("nvmlDeviceGetPowerUsage", d.GetPowerUsage),
		query("nvmlDeviceGetEnforcedPowerLimit", d.GetEnforcedPowerLimit),
		query("nvmlDeviceGetPowerManagementLimit", d.GetPowerManagementLimit),
		query("nvmlDeviceGetTotalEnergyConsumption", d.GetTotalEnergyConsumption),
		query("nvmlDeviceGetPerformanceState", d.GetPerformanceState),
		query("nvmlDeviceGetCurrentClocksEventReasons", d.GetCurrentClocksEventReasons),
		query("nvmlDeviceGetCurrentClocksThrottleReasons", d.GetCurrentClocksThrottleReasons),
		query("nvmlDeviceGetSupportedClocksEventReasons", d.GetSupportedClocksEventReasons),
		query("nvmlDeviceGetPcieReplayCounter", d.GetPcieReplayCounter),
		query("nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration),
		query("nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth),
		query("nvmlDeviceGetFanSpeed", d.GetFanSpeed),
		query("nvmlDeviceGetNumFans", d.GetNumFans),
	}
	for clock := range nvml.CLOCK_COUNT {
		all = append(all, queryWith("nvmlDeviceGetClockInfo", fmt.Sprint(clock), func() (uint32, nvml.Return) { return d.GetClockInfo(nvml.ClockType(clock)) }))
	}
	return all
}

// fields queries every field, each in a separate call, because one that is refused could spoil the others.
func fields(d nvml.Device) []question {
	var all []question
	for id := uint32(1); id < nvml.FI_MAX; id++ {
		all = append(all, queryWith("nvmlDeviceGetFieldValues", fmt.Sprint(id), func() (any, nvml.Return) {
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
		query("nvmlDeviceGetComputeRunningProcesses_v3", count(d.GetComputeRunningProcesses)),
		query("nvmlDeviceGetGraphicsRunningProcesses_v3", count(d.GetGraphicsRunningProcesses)),
		query("nvmlDeviceGetMPSComputeRunningProcesses_v3", count(d.GetMPSComputeRunningProcesses)),
		query("nvmlDeviceGetProcessUtilization", func() (int, nvml.Return) {
			found, code := d.GetProcessUtilization(0)
			return len(found), code
		}),
	}
}

// events queries with an event set in which the GPU is registered, and waits once for nothing. The process ends with the set.
func events(lib nvml.Interface, d nvml.Device) []question {
	set, created := lib.EventSetCreate()
	return []question{
		query("nvmlDeviceGetSupportedEventTypes", d.GetSupportedEventTypes),
		query("nvmlEventSetCreate", func() (bool, nvml.Return) { return set != nil, created }),
		{"nvmlDeviceRegisterEvents", "critical XIDs", func() (any, nvml.Return) { return nil, d.RegisterEvents(nvml.EventTypeXidCriticalError, set) }},
		{"nvmlDeviceRegisterEvents", "all types", func() (any, nvml.Return) { return nil, d.RegisterEvents(^uint64(0), set) }},
		{"nvmlEventSetWait_v2", "0 ms", func() (any, nvml.Return) {
			data, code := set.Wait(0)
			return data.EventType, code
		}},
	}
}
