/* MIG devices: the compute instances as applications see them. */
#include "mig.h"

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
	struct target target;

	ENTER_DEVICE(&target, is_mig);
	*is_mig = target.mig;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
	struct target target;
	unsigned seen = 0;

	ENTER_GPU(&target, mig);
	TRY(mig_capable(&target));
	if (!target.state.mig)
		return NVML_ERROR_NOT_FOUND;
	REQUIRE(index < target.model->max_mig);
	for (unsigned i = 0; i < MAX_INSTANCES; i++)
		for (unsigned c = 0; c < MAX_COMPUTES; c++) {
			if (!target.state.instances[i].computes[c].used || !visible_instance(target.gpu, i, c))
				continue;
			if (seen++ != index)
				continue;
			*mig = mig_handle(&target, i, c);
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

/* mig_target resolves a handle that must be that of a MIG device. */
static nvmlReturn_t mig_target(nvmlDevice_t device, struct target *target)
{
	TRY(device_target(device, target));
	REQUIRE(target->mig);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
	struct target target;

	ENTER();
	REQUIRE(device);
	TRY(mig_target(mig, &target));
	*device = gpu_handle(target.gpu);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct target target;

	ENTER();
	REQUIRE(id);
	TRY(mig_target(device, &target));
	*id = target.instance;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct target target;

	ENTER();
	REQUIRE(id);
	TRY(mig_target(device, &target));
	*id = target.compute;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	struct target target;

	ENTER_DEVICE(&target, attributes);
	if (!target.mig)
		return NVML_ERROR_NOT_SUPPORTED;
	const struct instance *instance = &target.state.instances[target.instance];
	const struct profile_part *profile = profile_by_id(target.model, instance->profile);
	const struct compute_part *compute = compute_by_id(profile, instance->computes[target.compute].profile);
	*attributes = (nvmlDeviceAttributes_t){
		.multiprocessorCount = compute->multiprocessors, .sharedCopyEngineCount = profile->copy,
		.sharedDecoderCount = profile->decoder, .sharedEncoderCount = profile->encoder,
		.sharedJpegCount = profile->jpeg, .sharedOfaCount = profile->ofa,
		.gpuInstanceSliceCount = profile->slices, .computeInstanceSliceCount = compute->slices,
		.memorySizeMB = profile->memory_mib,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	return nvmlDeviceGetAttributes_v2(device, attributes);
}
