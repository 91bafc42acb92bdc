package nvml

import (
	"encoding/binary"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// sensor is one NVML call that reads telemetry. read returns the values in base units.
type sensor struct {
	call string
	read func(nvml.Device) (gpu.Telemetry, nvml.Return)
}

// NVML's units, in base units.
const (
	percent = 0.01
	milli   = 0.001
	mega    = 1e6
)

// gpuSensors returns the sensors of a whole GPU.
func gpuSensors() []sensor {
	all := append(migSensors(),
		sensor{"nvmlDeviceGetUtilizationRates", utilization},
		numberSensor("nvmlDeviceGetTemperature", gpu.Temperature, 1, func(d nvml.Device) (uint32, nvml.Return) { return d.GetTemperature(nvml.TEMPERATURE_GPU) }),
		numberSensor("nvmlDeviceGetPowerUsage", gpu.Power, milli, nvml.Device.GetPowerUsage),
		numberSensor("nvmlDeviceGetEnforcedPowerLimit", gpu.PowerLimit, milli, nvml.Device.GetEnforcedPowerLimit),
		numberSensor("nvmlDeviceGetTotalEnergyConsumption", gpu.Energy, milli, nvml.Device.GetTotalEnergyConsumption),
		numberSensor("nvmlDeviceGetClockInfo", gpu.ProcessorClock, mega, func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(nvml.CLOCK_SM) }),
		numberSensor("nvmlDeviceGetClockInfo", gpu.MemoryClock, mega, func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(nvml.CLOCK_MEM) }),
		sensor{"nvmlDeviceGetCurrentClocksEventReasons", limits},
		errorsOf(gpu.CorrectedErrors, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC),
		errorsOf(gpu.LifetimeCorrectedErrors, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC),
		errorsOf(gpu.LifetimeUncorrectedErrors, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC),
		sensor{"nvmlDeviceGetRemappedRows", remapped},
		retired(gpu.RetiredSingleBit, nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
		retired(gpu.RetiredDoubleBit, nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
		numberSensor("nvmlDeviceGetRetiredPagesPendingStatus", gpu.RetirePending, 1, nvml.Device.GetRetiredPagesPendingStatus),
		numberSensor("nvmlDeviceGetPcieReplayCounter", gpu.PCIeReplays, 1, nvml.Device.GetPcieReplayCounter),
		sensor{"nvmlDeviceGetFieldValues", fields},
	)
	return all
}

// migSensors returns the sensors that MIG devices have too. A MIG device reports only the uncorrected ECC errors since
// the driver was loaded, and its GPU does not report these then.
func migSensors() []sensor {
	return []sensor{
		{"nvmlDeviceGetMemoryInfo_v2", memory},
		errorsOf(gpu.UncorrectedErrors, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC),
	}
}

// numberSensor returns a sensor whose call returns one number in the unit.
func numberSensor[N ~int | ~int32 | ~uint32 | ~uint64](call string, q gpu.Quantity, unit float64, get func(nvml.Device) (N, nvml.Return)) sensor {
	return sensor{call, func(d nvml.Device) (gpu.Telemetry, nvml.Return) {
		value, code := get(d)
		return gpu.Telemetry{q: float64(value) * unit}, code
	}}
}

func utilization(d nvml.Device) (gpu.Telemetry, nvml.Return) {
	rates, code := d.GetUtilizationRates()
	return gpu.Telemetry{gpu.Utilization: float64(rates.Gpu) * percent, gpu.MemoryUtilization: float64(rates.Memory) * percent}, code
}

// memory uses the version of the call that does not count the driver's own memory as used; older drivers have only the
// other.
func memory(d nvml.Device) (gpu.Telemetry, nvml.Return) {
	info, code := d.GetMemoryInfo_v2()
	if code != nvml.SUCCESS {
		var older nvml.Memory
		older, code = d.GetMemoryInfo()
		info.Used, info.Total = older.Used, older.Total
	}
	return gpu.Telemetry{gpu.MemoryUsed: float64(info.Used), gpu.MemoryTotal: float64(info.Total)}, code
}

// clockReasons uses the call's newer name and then its older one.
func clockReasons(d nvml.Device) (uint64, nvml.Return) {
	reasons, code := d.GetCurrentClocksEventReasons()
	if code == nvml.ERROR_FUNCTION_NOT_FOUND {
		reasons, code = d.GetCurrentClocksThrottleReasons()
	}
	return reasons, code
}

func limits(d nvml.Device) (gpu.Telemetry, nvml.Return) {
	reasons, code := clockReasons(d)
	t := gpu.Telemetry{}
	for q, bit := range map[gpu.Quantity]uint64{
		gpu.LimitedBySetting: nvml.ClocksEventReasonApplicationsClocksSetting,
		gpu.LimitedByPower:   nvml.ClocksEventReasonSwPowerCap,
		gpu.LimitedByPeers:   nvml.ClocksEventReasonSyncBoost,
		gpu.LimitedByHeat:    nvml.ClocksEventReasonSwThermalSlowdown,
		gpu.Braked:           nvml.ClocksThrottleReasonHwSlowdown,
		gpu.BrakedByHeat:     nvml.ClocksThrottleReasonHwThermalSlowdown,
		gpu.BrakedBySupply:   nvml.ClocksThrottleReasonHwPowerBrakeSlowdown,
	} {
		t[q] = boolValue(reasons&bit != 0)
	}
	return t, code
}

func errorsOf(q gpu.Quantity, kind nvml.MemoryErrorType, since nvml.EccCounterType) sensor {
	return numberSensor("nvmlDeviceGetTotalEccErrors", q, 1, func(d nvml.Device) (uint64, nvml.Return) { return d.GetTotalEccErrors(kind, since) })
}

func remapped(d nvml.Device) (gpu.Telemetry, nvml.Return) {
	corrected, uncorrected, pending, failed, code := d.GetRemappedRows()
	return gpu.Telemetry{
		gpu.RemappedCorrected: float64(corrected), gpu.RemappedUncorrected: float64(uncorrected),
		gpu.RemapPending: boolValue(pending), gpu.RemapFailed: boolValue(failed),
	}, code
}

func retired(q gpu.Quantity, cause nvml.PageRetirementCause) sensor {
	return numberSensor("nvmlDeviceGetRetiredPages", q, 1, func(d nvml.Device) (int, nvml.Return) {
		pages, code := d.GetRetiredPages(cause)
		return len(pages), code
	})
}

// fields reads the quantities that NVML returns by field number only. Each value has its own return code.
func fields(d nvml.Device) (gpu.Telemetry, nvml.Return) {
	values := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_MEMORY_TEMP},
		{FieldId: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
		{FieldId: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
		{FieldId: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
		{FieldId: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	}
	quantities := []gpu.Quantity{gpu.MemoryTemperature, gpu.LinkFlitErrors, gpu.LinkDataErrors, gpu.LinkReplays, gpu.LinkRecoveries}
	code := d.GetFieldValues(values)
	t := gpu.Telemetry{}
	for i, v := range values {
		if number, is := numberIn(v); is && nvml.Return(v.NvmlReturn) == nvml.SUCCESS {
			t[quantities[i]] = number
		}
	}
	return t, code
}

// fieldNumbers returns the numbers in the fields, and the first failure of the call or of a field.
func fieldNumbers(d nvml.Device, ids ...uint32) ([]float64, nvml.Return) {
	fields := make([]nvml.FieldValue, len(ids))
	for i, id := range ids {
		fields[i].FieldId = id
	}
	code := d.GetFieldValues(fields)
	numbers := make([]float64, len(ids))
	for i, field := range fields {
		if code == nvml.SUCCESS {
			code = nvml.Return(field.NvmlReturn)
		}
		numbers[i], _ = numberIn(field)
	}
	return numbers, code
}

// numberIn returns the number in a field, whose bytes are those of a C union; false for an unknown type.
func numberIn(v nvml.FieldValue) (float64, bool) {
	short, long := binary.NativeEndian.Uint32(v.Value[:4]), binary.NativeEndian.Uint64(v.Value[:])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(long), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(short), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(long), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(long)), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(short)), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(binary.NativeEndian.Uint16(v.Value[:2])), true
	case nvml.VALUE_TYPE_COUNT:
	}
	return 0, false
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
