/* Modes of a whole GPU: MIG, compute, persistence, time slice. */
#include "mig.h"
#include "private.h"

#include <sys/stat.h>

static bool partitioned(const struct gpu_state *state)
{
	for (unsigned i = 0; i < MAX_INSTANCES; i++)
		if (state->instances[i].used)
			return true;
	return false;
}

/*
 * gpu_held reports whether the GPU is in use: a context, or a program of a container that has opened it through NVML, as dcgm-exporter ("activation fails
 * when the GPU is in use by another client", nvml.h, nvmlDeviceSetMigMode; mig-parted stops dcgm-exporter for each change). Programs of the host do not
 * count: whether a driver counts two agents of one node has not been measured.
 */
static bool gpu_held(unsigned gpu) { return held(gpu, 0, 0, 256) || gpu_monitored(gpu); }

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	struct target target;

	ENTER_GPU(&target, current && pending);
	TRY(mig_capable(&target));
	*current = target.state.mig;
	*pending = target.state.pending_mig;
	return NVML_SUCCESS;
}

bool resetless_mig(const struct target *target)
{
	return target->model->profile_count && !target->model->mig_needs_reset && !target->state.mig_needs_reset &&
	       target->state.virtualization != NVML_GPU_VIRTUALIZATION_MODE_VGPU;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode)
{
	struct target target;

	ENTER_GPU(&target, mode);
	*mode = target.state.virtualization;
	return NVML_SUCCESS;
}

void mig_now(struct gpu_state *state, unsigned mode)
{
	state->mig = mode;
	if (mode)
		state->compute_mode = NVML_COMPUTEMODE_DEFAULT;
}

/*
 * change_mig makes the mode pending, and current where that needs no reset and no process uses
 * the GPU. With instances on it, turning MIG off is an error.
 */
static nvmlReturn_t change_mig(const struct target *target, struct gpu_state *state, unsigned mode, nvmlReturn_t *activation)
{
	*activation = NVML_SUCCESS;
	if (mode != state->mig && partitioned(state)) {
		*activation = NVML_ERROR_IN_USE;
		return NVML_ERROR_IN_USE;
	}
	state->pending_mig = mode;
	if (mode == state->mig)
		return NVML_SUCCESS;
	if (gpu_held(target->gpu))
		*activation = NVML_ERROR_IN_USE;
	else if (!resetless_mig(target))
		*activation = NVML_ERROR_RESET_REQUIRED;
	else
		mig_now(state, mode);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
	struct target target;

	ENTER_GPU(&target, activation && mode <= NVML_DEVICE_MIG_ENABLE);
	TRY(mig_capable(&target));
	TRY(privileged());
	if (target.state.virtualization == NVML_GPU_VIRTUALIZATION_MODE_VGPU)
		return NVML_ERROR_NOT_SUPPORTED;
	gpu_busy_begin(target.gpu);
	struct live *live = state_begin();
	nvmlReturn_t result = change_mig(&target, &live->gpus[target.gpu], mode, activation);
	result == NVML_SUCCESS ? state_commit() : state_abort();
	gpu_busy_end(target.gpu);
	return result;
}

/* set changes one number of a GPU's state. */
static nvmlReturn_t set(unsigned gpu, size_t offset, uint32_t value)
{
	TRY(privileged());
	struct live *live = state_begin();
	*(uint32_t *)((char *)&live->gpus[gpu] + offset) = value;
	state_commit();
	return NVML_SUCCESS;
}

#define SET(gpu, field, value) set(gpu, offsetof(struct gpu_state, field), value)

nvmlReturn_t fakegpuSetTimeSlice(nvmlDevice_t device, unsigned interval)
{
	struct target target;

	ENTER_GPU(&target, interval <= 3);
	return target.state.mig ? NVML_ERROR_NOT_SUPPORTED : SET(target.gpu, time_slice, interval);
}

nvmlReturn_t fakegpuGetTimeSlice(nvmlDevice_t device, unsigned *interval)
{
	struct target target;

	ENTER_GPU(&target, interval);
	*interval = target.state.time_slice;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	struct target target;

	ENTER_DEVICE(&target, mode);
	*mode = target.state.compute_mode;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
	struct target target;

	ENTER_DEVICE(&target, mode < NVML_COMPUTEMODE_COUNT);
	if (target.state.mig || mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
		return NVML_ERROR_NOT_SUPPORTED;
	return SET(target.gpu, compute_mode, mode);
}

/* HELD_BY_DAEMON is the persistence of a GPU that nvidia-persistenced has open. It closes the GPU only on request through its socket. */
enum { HELD_BY_DAEMON = 2 };

static bool daemon_reachable(void)
{
	struct stat st;

	return !stat("/var/run/nvidia-persistenced/socket", &st) && S_ISSOCK(st.st_mode);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	struct target target;

	ENTER_GPU(&target, mode);
	*mode = target.state.persistence && (target.state.persistence != HELD_BY_DAEMON || daemon_reachable()) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
	struct target target;

	ENTER_GPU(&target, mode <= NVML_FEATURE_ENABLED);
	if (mode == NVML_FEATURE_ENABLED && daemon_reachable())
		return SET(target.gpu, persistence, HELD_BY_DAEMON);
	if (target.state.persistence == HELD_BY_DAEMON && !daemon_reachable())
		return NVML_SUCCESS; /* of the driver's own mode, which is off */
	return SET(target.gpu, persistence, mode);
}
