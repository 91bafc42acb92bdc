/* Compute instances. */
#include "mig.h"

#include <stdio.h>
#include <string.h>

#ifdef OLD_DRIVER
#define PROFILE_COUNT 8
#else
#define PROFILE_COUNT NVML_COMPUTE_INSTANCE_PROFILE_COUNT
#endif

/* ENTER_INSTANCE begins the functions on a GPU instance; they require the permission to manage it. */
#define ENTER_INSTANCE(target, result) ENTER(); REQUIRE(result); TRY(instance_target(handle, target)); TRY(privileged())

static const struct profile_part *profile_of(const struct target *target)
{
	return profile_by_id(target->model, target->state.instances[target->instance].profile);
}

/* offered finds the profile of a constant NVML_COMPUTE_INSTANCE_PROFILE_*. */
static nvmlReturn_t offered(const struct target *target, unsigned constant, unsigned engines, const struct compute_part **found)
{
	const struct profile_part *profile = profile_of(target);

	REQUIRE(constant < PROFILE_COUNT && engines < NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT);
	for (unsigned i = 0; i < profile->compute_count; i++) {
		*found = &profile->compute[i];
		if ((*found)->constant == constant)
			return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned int constant, unsigned int engines,
							  nvmlComputeInstanceProfileInfo_t *info)
{
	struct target target;
	const struct compute_part *compute;

	ENTER();
	REQUIRE(info);
	TRY(instance_target(handle, &target));
	TRY(offered(&target, constant, engines, &compute));
	const struct profile_part *profile = profile_of(&target);
	*info = (nvmlComputeInstanceProfileInfo_t){
		.id = compute->id, .sliceCount = compute->slices, .instanceCount = compute->start_count,
		.multiprocessorCount = compute->multiprocessors, .sharedCopyEngineCount = profile->copy,
		.sharedDecoderCount = profile->decoder, .sharedEncoderCount = profile->encoder,
		.sharedJpegCount = profile->jpeg, .sharedOfaCount = profile->ofa,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned int constant, unsigned int engines,
							   nvmlComputeInstanceProfileInfo_v2_t *info)
{
	struct target target;
	const struct compute_part *compute;

	ENTER();
	REQUIRE(info);
	TRY(instance_target(handle, &target));
	TRY(offered(&target, constant, engines, &compute));
	if (info->version != nvmlComputeInstanceProfileInfo_v2 && info->version != nvmlComputeInstanceProfileInfo_v3)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	const struct profile_part *profile = profile_of(&target);
	*info = (nvmlComputeInstanceProfileInfo_v2_t){
		.version = info->version, .id = compute->id, .sliceCount = compute->slices,
		.instanceCount = compute->start_count, .multiprocessorCount = compute->multiprocessors,
		.sharedCopyEngineCount = profile->copy, .sharedDecoderCount = profile->decoder,
		.sharedEncoderCount = profile->encoder, .sharedJpegCount = profile->jpeg, .sharedOfaCount = profile->ofa,
	};
	mig_name(info->name, sizeof info->name, profile, compute);
	if (info->version == nvmlComputeInstanceProfileInfo_v3)
		((nvmlComputeInstanceProfileInfo_v3_t *)info)->capabilities =
			profile->graphics ? NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle, unsigned int id, unsigned int *count)
{
	struct target target;

	ENTER_INSTANCE(&target, count);
	const struct compute_part *compute = compute_by_id(profile_of(&target), id);
	if (!compute)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = 0;
	for (unsigned i = 0; i < compute->start_count; i++)
		*count += compute_fits(&target.state.instances[target.instance], compute, compute->starts[i]) == NVML_SUCCESS;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t handle, unsigned int id,
								 nvmlComputeInstancePlacement_t *placements, unsigned int *count)
{
	struct target target;

	ENTER_INSTANCE(&target, count);
	const struct compute_part *compute = compute_by_id(profile_of(&target), id);
	if (!compute)
		return NVML_ERROR_NOT_SUPPORTED;
	for (unsigned i = 0; placements && i < compute->start_count; i++)
		placements[i] = (nvmlComputeInstancePlacement_t){compute->starts[i], compute->slices};
	*count = compute->start_count;
	return NVML_SUCCESS;
}

/* mix spreads the bits of a number over all of it. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/*
 * set_uuid derives the UUID as the driver does, from the GPU and the place of the instance: the same place has the same UUID again (open-gpu-kernel-modules,
 * gpu_uuid.c, gpuGenerateUuidFromPdi with swizzId and syspipe).
 */
static void set_uuid(const char *gpu, const struct instance *instance, struct compute *compute)
{
	uint64_t place = (uint64_t)instance->start << 32 | instance->size << 16 | compute->start << 8 | compute->size;
	uint64_t high = mix(place + 1);

	for (; *gpu; gpu++)
		high = mix(high ^ (uint8_t)*gpu);
	uint64_t low = mix(high + place);
	memcpy(compute->uuid, &high, 8);
	memcpy(compute->uuid + 8, &low, 8);
	compute->uuid[6] = (compute->uuid[6] & 0x0f) | 0x50;
	compute->uuid[8] = (compute->uuid[8] & 0x3f) | 0x80;
}

/* insert creates the compute instance in a state that is being changed. */
static nvmlReturn_t insert(struct live *live, struct target *target, const struct compute_part *profile, bool placed, unsigned start)
{
	struct instance *instance = &live->gpus[target->gpu].instances[target->instance];

	for (unsigned i = 0; !placed && i < profile->start_count; i++)
		if (compute_fits(instance, profile, profile->starts[i]) == NVML_SUCCESS) {
			start = profile->starts[i];
			placed = true;
		}
	if (!placed)
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	TRY(compute_fits(instance, profile, start));
	target->compute = 0;
	while (instance->computes[target->compute].used)
		target->compute++;
	struct compute *compute = &instance->computes[target->compute];
	*compute = (struct compute){
		.serial = ++live->serial, .used = 1, .profile = profile->id, .start = start, .size = profile->slices};
	set_uuid(target->part->uuid, instance, compute);
	target->state = live->gpus[target->gpu];
	return NVML_SUCCESS;
}

static nvmlReturn_t create(struct target *target, unsigned id, const nvmlComputeInstancePlacement_t *placement,
			   nvmlComputeInstance_t *created)
{
	const struct compute_part *profile = compute_by_id(profile_of(target), id);

	if (!profile)
		return NVML_ERROR_NOT_SUPPORTED;
	if (placement)
		REQUIRE(placement->size == profile->slices &&
			legal_start(profile->starts, profile->start_count, placement->start));
	uint64_t serial = target->state.instances[target->instance].serial;
	struct live *live = state_begin();
	nvmlReturn_t result = live->gpus[target->gpu].instances[target->instance].serial == serial
		? insert(live, target, profile, placement != NULL, placement ? placement->start : 0)
		: NVML_ERROR_INVALID_ARGUMENT;
	result == NVML_SUCCESS ? state_commit() : state_abort();
	if (result == NVML_SUCCESS)
		*created = compute_handle(target, target->instance, target->compute);
	return result;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *created)
{
	struct target target;

	ENTER_INSTANCE(&target, created);
	return create(&target, id, NULL, created);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t handle, unsigned int id,
							       const nvmlComputeInstancePlacement_t *placement,
							       nvmlComputeInstance_t *created)
{
	struct target target;

	ENTER_INSTANCE(&target, created && placement);
	return create(&target, id, placement, created);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle)
{
	struct target target;

	ENTER();
	TRY(compute_target(handle, &target));
	TRY(privileged());
	if (held(target.gpu, target.instance, target.compute, 1) || (target.state.pins_mig && gpu_watched(target.gpu)))
		return NVML_ERROR_IN_USE;
	uint64_t serial = target.state.instances[target.instance].computes[target.compute].serial;
	struct live *live = state_begin();
	struct compute *compute = &live->gpus[target.gpu].instances[target.instance].computes[target.compute];
	bool same = compute->used && compute->serial == serial;
	if (same)
		*compute = (struct compute){0};
	same ? state_commit() : state_abort();
	return same ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *list,
						unsigned int *count)
{
	struct target target;

	ENTER_INSTANCE(&target, list && count);
	if (!compute_by_id(profile_of(&target), id))
		return NVML_ERROR_NOT_SUPPORTED;
	const struct compute *computes = target.state.instances[target.instance].computes;
	*count = 0;
	for (unsigned i = 0; i < MAX_COMPUTES; i++)
		if (computes[i].used && computes[i].profile == id)
			list[(*count)++] = compute_handle(&target, target.instance, i);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *compute)
{
	struct target target;

	ENTER_INSTANCE(&target, compute);
	REQUIRE(id < MAX_COMPUTES);
	if (!target.state.instances[target.instance].computes[id].used)
		return NVML_ERROR_NOT_FOUND;
	*compute = compute_handle(&target, target.instance, id);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info)
{
	struct target target;

	ENTER();
	REQUIRE(info);
	TRY(compute_target(handle, &target));
	const struct compute *compute = &target.state.instances[target.instance].computes[target.compute];
	/* As in real drivers, the device is the MIG device, although the header calls the field "parent". */
	*info = (nvmlComputeInstanceInfo_t){
		.device = mig_handle(&target, target.instance, target.compute),
		.gpuInstance = instance_handle(&target, target.instance),
		.id = target.compute, .profileId = compute->profile, .placement = {compute->start, compute->size},
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info)
{
	return nvmlComputeInstanceGetInfo_v2(handle, info);
}
