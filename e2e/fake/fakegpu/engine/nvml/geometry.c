/* The possible partitions of a GPU. All forms but "by id" work with MIG off as well. */
#include "mig.h"

#include <stdio.h>
#include <string.h>

#ifdef OLD_DRIVER
#define PROFILE_COUNT 0xA
#else
#define PROFILE_COUNT NVML_GPU_INSTANCE_PROFILE_COUNT
#endif

/* reported is a profile as the GPU reports it in its present mode. */
static struct profile_part reported(const struct target *target, const struct profile_part *profile)
{
	struct profile_part now = *profile;
	if (!target->state.mig) {
		now.memory_mib += target->state.larger_memory_mib;
		now.multiprocessors += target->state.larger_multiprocessors;
	}
	return now;
}

/* offered finds the profile of a constant NVML_GPU_INSTANCE_PROFILE_*. */
static nvmlReturn_t offered(nvmlDevice_t device, unsigned constant, struct target *target, struct profile_part *profile)
{
	REQUIRE(constant < PROFILE_COUNT);
	TRY(gpu_target(device, target));
	TRY(mig_capable(target));
	for (unsigned i = 0; i < target->model->profile_count; i++) {
		if (target->model->profiles[i].constant == constant) {
			*profile = reported(target, &target->model->profiles[i]);
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int constant, nvmlGpuInstanceProfileInfo_t *info)
{
	struct target target;
	struct profile_part profile;

	ENTER();
	REQUIRE(info);
	TRY(offered(device, constant, &target, &profile));
	*info = (nvmlGpuInstanceProfileInfo_t){
		.id = profile.id, .sliceCount = profile.slices, .instanceCount = profile.max_instances,
		.multiprocessorCount = profile.multiprocessors, .copyEngineCount = profile.copy,
		.decoderCount = profile.decoder, .encoderCount = profile.encoder,
		.jpegCount = profile.jpeg, .ofaCount = profile.ofa, .memorySizeMB = profile.memory_mib,
	};
	return NVML_SUCCESS;
}

/* fill_info writes version 2 or 3, as requested by the caller; the two differ from the second
 * field on. Like driver 580 it leaves no version behind, and no name in version 3. */
static nvmlReturn_t fill_info(const struct profile_part *profile, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	if (info->version == nvmlGpuInstanceProfileInfo_v2) {
		*info = (nvmlGpuInstanceProfileInfo_v2_t){
			.id = profile->id, .sliceCount = profile->slices,
			.instanceCount = profile->max_instances, .multiprocessorCount = profile->multiprocessors,
			.copyEngineCount = profile->copy, .decoderCount = profile->decoder, .encoderCount = profile->encoder,
			.jpegCount = profile->jpeg, .ofaCount = profile->ofa, .memorySizeMB = profile->memory_mib,
		};
		snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
		return NVML_SUCCESS;
	}
	if (info->version != nvmlGpuInstanceProfileInfo_v3)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlGpuInstanceProfileInfo_v3_t *newer = (nvmlGpuInstanceProfileInfo_v3_t *)info;
	*newer = (nvmlGpuInstanceProfileInfo_v3_t){
		.id = profile->id, .sliceCount = profile->slices,
		.instanceCount = profile->max_instances, .multiprocessorCount = profile->multiprocessors,
		.copyEngineCount = profile->copy, .decoderCount = profile->decoder, .encoderCount = profile->encoder,
		.jpegCount = profile->jpeg, .ofaCount = profile->ofa, .memorySizeMB = profile->memory_mib,
		.capabilities = profile->graphics ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int constant, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	struct target target;
	struct profile_part profile;

	ENTER();
	REQUIRE(info);
	TRY(offered(device, constant, &target, &profile));
	return fill_info(&profile, info);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	struct target target;

	ENTER_GPU(&target, info);
	TRY(mig_enabled(&target));
	const struct profile_part *profile = profile_by_id(target.model, id);
	return profile ? fill_info(profile, info) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
							   nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
	struct target target;

	ENTER_GPU(&target, count);
	TRY(privileged());
	TRY(mig_capable(&target));
	const struct profile_part *profile = profile_by_id(target.model, id);
	if (!profile)
		return NVML_ERROR_NOT_SUPPORTED;
	for (unsigned i = 0; placements && i < profile->start_count; i++)
		placements[i] = (nvmlGpuInstancePlacement_t){profile->starts[i], profile->size};
	*count = profile->start_count;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id,
							nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
	return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	struct target target;

	ENTER_GPU(&target, count);
	*count = target.state.mig ? target.model->max_mig : 0;
	return NVML_SUCCESS;
}
