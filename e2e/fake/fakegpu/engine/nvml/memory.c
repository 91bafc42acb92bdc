/* Memory and its errors. */
#include "limits.h"

#define MIB (1ull << 20)

/* memory_used is the use by processes of the GPU, or of the GPU instance: it is one memory for all its compute instances. */
static unsigned long long memory_used(const struct target *target)
{
	unsigned long long sum = 0;

	for (unsigned i = 0; i < target->state.process_count; i++)
		if (!target->mig || target->state.processes[i].instance == target->instance)
			sum += target->state.processes[i].bytes;
	return sum;
}

/* memory_of returns the memory of the GPU, of its control group's limit or of the MIG device. Used does not include what the driver reserves. */
static nvmlMemory_v2_t memory_of(const struct target *target)
{
	unsigned long long total = target->model->memory_mib * MIB, used = memory_used(target), charged = 0, reserved = 0;

	if (target->mig)
		total = profile_by_id(target->model, target->state.instances[target->instance].profile)->memory_mib * MIB;
	else {
		unsigned long long seen = visible_memory(target, total, &charged);
		reserved = seen == total ? target->model->reserved_mib * MIB : 0;
		total = seen;
	}
	used = charged ? charged : used;
	used = used < total - reserved ? used : total - reserved;
	return (nvmlMemory_v2_t){.version = nvmlMemory_v2, .total = total, .reserved = reserved, .free = total - reserved - used, .used = used};
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct target target;

	ENTER_DEVICE(&target, memory);
	nvmlMemory_v2_t all = memory_of(&target);
	*memory = (nvmlMemory_t){.total = all.total, .free = all.free, .used = all.used + all.reserved};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct target target;

	ENTER_DEVICE(&target, memory);
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*memory = memory_of(&target);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	struct target target;

	ENTER_DEVICE(&target, memory);
	unsigned long long total = memory_of(&target).total;
	*memory = (nvmlBAR1Memory_t){.bar1Total = total, .bar1Free = total};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	struct target target;

	ENTER_GPU(&target, current && pending);
	*current = *pending = NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

/*
 * ecc_errors counts. In MIG mode the errors since the load of the driver are counted by MIG device only, and of those only the
 * uncorrected ones; the lifetime counts are the GPU's.
 */
static nvmlReturn_t ecc_errors(const struct target *target, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
			       unsigned long long *count)
{
	const struct gpu_state *state = &target->state;
	bool corrected = type == NVML_MEMORY_ERROR_TYPE_CORRECTED, lifetime = counter == NVML_AGGREGATE_ECC;

	if (target->mig ? corrected || lifetime : state->mig && !lifetime)
		return NVML_ERROR_NOT_SUPPORTED;
	if (target->mig)
		*count = state->instances[target->instance].ecc_uncorrected;
	else if (lifetime)
		*count = corrected ? state->lifetime_ecc_corrected : state->lifetime_ecc_uncorrected;
	else
		*count = corrected ? state->ecc_corrected : state->ecc_uncorrected;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
					 unsigned long long *count)
{
	struct target target;

	ENTER_DEVICE(&target, count && type < NVML_MEMORY_ERROR_TYPE_COUNT && counter < NVML_ECC_COUNTER_TYPE_COUNT);
	return ecc_errors(&target, type, counter, count);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
					     nvmlMemoryLocation_t location, unsigned long long *count)
{
	struct target target;

	ENTER_GPU(&target, count && type < NVML_MEMORY_ERROR_TYPE_COUNT && counter < NVML_ECC_COUNTER_TYPE_COUNT &&
			   location < NVML_MEMORY_LOCATION_COUNT);
	TRY(ecc_errors(&target, type, counter, count));
	if (location != NVML_MEMORY_LOCATION_DRAM)
		*count = 0;
	return NVML_SUCCESS;
}

/* Rows are remapped from Ampere on; before, pages were retired. */
static bool remaps_rows(const struct target *target) { return target->model->architecture >= NVML_DEVICE_ARCH_AMPERE; }

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
				       unsigned int *pending, unsigned int *failed)
{
	struct target target;

	ENTER_GPU(&target, correctable && uncorrectable && pending && failed);
	if (!remaps_rows(&target))
		return NVML_ERROR_NOT_SUPPORTED;
	*correctable = target.state.remap_correctable;
	*uncorrectable = target.state.remap_uncorrectable;
	*pending = target.state.remap_pending;
	*failed = target.state.remap_failed;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values)
{
	struct target target;

	ENTER_GPU(&target, values);
	if (!remaps_rows(&target))
		return NVML_ERROR_NOT_SUPPORTED;
	*values = (nvmlRowRemapperHistogramValues_t){.max = 640};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending)
{
	struct target target;

	ENTER_GPU(&target, pending);
	*pending = target.state.retire_pending ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return remaps_rows(&target) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* retired_pages lists pages that have been retired for a cause, at addresses of no meaning. */
static nvmlReturn_t retired_pages(const char *function, nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned *count,
				  unsigned long long *addresses, struct target *target)
{
	TRY(enter(function));
	REQUIRE(count && (addresses || !*count) && cause < NVML_PAGE_RETIREMENT_CAUSE_COUNT);
	TRY(gpu_target(device, target));
	if (remaps_rows(target))
		return NVML_ERROR_NOT_SUPPORTED;
	unsigned room = *count;
	*count = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? target->state.sensors.retired_multiple
									  : target->state.sensors.retired_single;
	if (*count > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < *count; i++)
		addresses[i] = (cause * 4096ull + i) << 12;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
				       unsigned long long *addresses)
{
	struct target target;

	return retired_pages(__func__, device, cause, count, addresses, &target);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
					  unsigned long long *addresses, unsigned long long *timestamps)
{
	struct target target;

	TRY(retired_pages(__func__, device, cause, count, addresses, &target));
	for (unsigned i = 0; i < *count; i++)
		timestamps[i] = 0;
	return NVML_SUCCESS;
}
