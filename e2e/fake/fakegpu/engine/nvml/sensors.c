/* Sensors: utilization, temperature, power, clocks. Their values are injected and otherwise constant. */
#include "session.h"

/* On a GPU in MIG mode no utilization is reported, neither for the GPU nor for a MIG device. */
#define ENTER_BUSY(target, result)             \
	ENTER_DEVICE(target, result);          \
	if ((target)->state.mig)               \
		return NVML_ERROR_NOT_SUPPORTED

enum { SAMPLING_US = 166667 };

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	struct target target;

	ENTER_BUSY(&target, rates);
	*rates = (nvmlUtilization_t){.gpu = target.state.sensors.gpu_use, .memory = target.state.sensors.memory_use};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period)
{
	struct target target;

	ENTER_BUSY(&target, percent && period);
	*percent = target.state.sensors.encoder_use;
	*period = SAMPLING_US;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period)
{
	struct target target;

	ENTER_BUSY(&target, percent && period);
	*percent = target.state.sensors.decoder_use;
	*period = SAMPLING_US;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius)
{
	struct target target;

	ENTER_GPU(&target, celsius && sensor == NVML_TEMPERATURE_GPU);
	*celsius = target.state.sensors.celsius;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
	struct target target;

	ENTER_GPU(&target, temperature);
	if (temperature->version != nvmlTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	REQUIRE(temperature->sensorType == NVML_TEMPERATURE_GPU);
	temperature->temperature = target.state.sensors.celsius;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatt)
{
	struct target target;

	ENTER_GPU(&target, milliwatt);
	*milliwatt = target.state.sensors.milli_watt;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoule)
{
	struct target target;

	ENTER_GPU(&target, millijoule);
	*millijoule = target.state.sensors.energy_mj;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
	struct target target;

	ENTER_GPU(&target, mhz && type < NVML_CLOCK_COUNT);
	*mhz = type == NVML_CLOCK_MEM ? target.state.sensors.clock_memory : target.state.sensors.clock_sm;
	return NVML_SUCCESS;
}

static nvmlReturn_t clock_reasons(const char *function, nvmlDevice_t device, unsigned long long *reasons)
{
	struct target target;

	TRY(enter(function));
	REQUIRE(reasons);
	TRY(gpu_target(device, &target));
	*reasons = target.state.sensors.clock_reasons;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	return clock_reasons(__func__, device, reasons);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	return clock_reasons(__func__, device, reasons);
}
