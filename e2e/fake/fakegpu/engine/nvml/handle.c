#include "session.h"

#include <stdio.h>
#include <string.h>

/*
 * A handle points into these tables. The handle of an instance contains the serial number of the
 * instance and is refused when that is destroyed. As NVML warns, a handle may be used again:
 * when the next instance with the same ids is queried, old handles refer to that one.
 */
struct nvmlDevice_st { uint64_t serial; };
struct nvmlGpuInstance_st { uint64_t serial; };
struct nvmlComputeInstance_st { uint64_t serial; };

static struct nvmlDevice_st gpus[MAX_GPUS];
static struct nvmlDevice_st migs[MAX_GPUS][MAX_INSTANCES][MAX_COMPUTES];
static struct nvmlGpuInstance_st instances[MAX_GPUS][MAX_INSTANCES];
static struct nvmlComputeInstance_st computes[MAX_GPUS][MAX_INSTANCES][MAX_COMPUTES];

/* position returns the index in a table; -1 when the pointer is not in it. */
static long position(const void *element, const void *table, size_t size, size_t element_size)
{
	uintptr_t offset = (uintptr_t)element - (uintptr_t)table;

	return (uintptr_t)element >= (uintptr_t)table && offset < size && offset % element_size == 0
		? (long)(offset / element_size) : -1;
}

#define POSITION(element, table, type) position(element, table, sizeof(table), sizeof(struct type))

static nvmlReturn_t load(unsigned gpu, struct target *target)
{
	*target = (struct target){.gpu = gpu, .part = &hardware()->gpus[gpu]};
	REQUIRE(gpu < hardware()->gpu_count);
	target->model = &hardware()->models[target->part->model];
	live_gpu(gpu, &target->state);
	return target->state.lost == FALLEN_OFF ? NVML_ERROR_GPU_IS_LOST : target->state.lost ? NVML_ERROR_RESET_REQUIRED : NVML_SUCCESS;
}

static nvmlReturn_t load_compute(long place, uint64_t serial, struct target *target)
{
	TRY(load(place / (MAX_INSTANCES * MAX_COMPUTES), target));
	target->instance = place / MAX_COMPUTES % MAX_INSTANCES;
	target->compute = place % MAX_COMPUTES;
	const struct compute *compute = &target->state.instances[target->instance].computes[target->compute];
	REQUIRE(compute->used && compute->serial == serial);
	return NVML_SUCCESS;
}

nvmlReturn_t gpu_target(nvmlDevice_t device, struct target *target)
{
	long place = POSITION(device.handle, gpus, nvmlDevice_st);

	if (place >= 0)
		return load(place, target);
	return POSITION(device.handle, migs, nvmlDevice_st) >= 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t known_target(nvmlDevice_t device, struct target *target)
{
	nvmlReturn_t result = gpu_target(device, target);

	return result == NVML_ERROR_RESET_REQUIRED ? NVML_SUCCESS : result;
}

nvmlReturn_t device_target(nvmlDevice_t device, struct target *target)
{
	long place = POSITION(device.handle, migs, nvmlDevice_st);

	if (place < 0)
		return gpu_target(device, target);
	TRY(load_compute(place, device.handle->serial, target));
	target->mig = true;
	return NVML_SUCCESS;
}

nvmlReturn_t instance_target(nvmlGpuInstance_t handle, struct target *target)
{
	long place = POSITION(handle.handle, instances, nvmlGpuInstance_st);

	REQUIRE(place >= 0);
	TRY(load(place / MAX_INSTANCES, target));
	target->instance = place % MAX_INSTANCES;
	const struct instance *instance = &target->state.instances[target->instance];
	REQUIRE(instance->used && instance->serial == handle.handle->serial);
	return NVML_SUCCESS;
}

nvmlReturn_t compute_target(nvmlComputeInstance_t handle, struct target *target)
{
	long place = POSITION(handle.handle, computes, nvmlComputeInstance_st);

	REQUIRE(place >= 0);
	return load_compute(place, handle.handle->serial, target);
}

nvmlDevice_t gpu_handle(unsigned gpu) { return (nvmlDevice_t){&gpus[gpu]}; }

nvmlDevice_t mig_handle(const struct target *target, unsigned instance, unsigned compute)
{
	struct nvmlDevice_st *handle = &migs[target->gpu][instance][compute];

	handle->serial = target->state.instances[instance].computes[compute].serial;
	return (nvmlDevice_t){handle};
}

nvmlGpuInstance_t instance_handle(const struct target *target, unsigned instance)
{
	struct nvmlGpuInstance_st *handle = &instances[target->gpu][instance];

	handle->serial = target->state.instances[instance].serial;
	return (nvmlGpuInstance_t){handle};
}

nvmlComputeInstance_t compute_handle(const struct target *target, unsigned instance, unsigned compute)
{
	struct nvmlComputeInstance_st *handle = &computes[target->gpu][instance][compute];

	handle->serial = target->state.instances[instance].computes[compute].serial;
	return (nvmlComputeInstance_t){handle};
}

const struct profile_part *profile_by_id(const struct model_part *model, unsigned id)
{
	for (unsigned i = 0; i < model->profile_count; i++)
		if (model->profiles[i].id == id)
			return &model->profiles[i];
	return NULL;
}

const struct compute_part *compute_by_id(const struct profile_part *profile, unsigned id)
{
	for (unsigned i = 0; i < profile->compute_count; i++)
		if (profile->compute[i].id == id)
			return &profile->compute[i];
	return NULL;
}

void mig_name(char *buffer, size_t size, const struct profile_part *profile, const struct compute_part *compute)
{
	if (compute->multiprocessors == profile->multiprocessors)
		snprintf(buffer, size, "MIG %s", profile->name);
	else
		snprintf(buffer, size, "MIG %uc.%s", compute->slices, profile->name);
}

void mig_uuid(char *buffer, size_t size, const struct compute *compute)
{
	const uint8_t *b = compute->uuid;

	snprintf(buffer, size, "MIG-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}
