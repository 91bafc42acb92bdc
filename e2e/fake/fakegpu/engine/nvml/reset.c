/* The reset of GPUs, which only nvidia-smi can request. */
#include "mig.h"
#include "private.h"

#include <string.h>

/*
 * in_use reports whether the GPU is in use: a context, an injected process, persistence mode, or another program that has opened
 * it through NVML.
 */
static bool in_use(const struct target *target)
{
	return held(target->gpu, 0, 0, 256) || target->state.process_count || target->state.persistence || gpu_watched(target->gpu);
}

/* joined reports whether NVLinks lead from one GPU to the other, up or down; all that lead to switches are joined. */
static bool joined(const struct gpu_part *from, const struct gpu_part *to)
{
	for (unsigned i = 0; i < from->link_count; i++) {
		const struct link_part *end = &from->nvlinks[i];
		if (end->kind == NVML_NVLINK_DEVICE_TYPE_SWITCH ? to->link_count > 0
								: end->domain == to->domain && end->bus == to->bus && end->device == to->device)
			return true;
	}
	return false;
}

/* alone reports whether the GPU has an NVLink to one that is not reset with it. From Ampere on that is no condition. */
static bool alone(const struct target *target, unsigned count, const nvmlDevice_t *devices)
{
	for (unsigned gpu = 0; target->model->compute_major < 8 && gpu < hardware()->gpu_count; gpu++) {
		bool named = gpu == target->gpu || !joined(target->part, &hardware()->gpus[gpu]);
		for (unsigned i = 0; i < count && !named; i++)
			named = devices[i].handle == gpu_handle(gpu).handle;
		if (!named)
			return true;
	}
	return false;
}

/* renew applies a reset. It does not clear slowdowns by heat or power, and not the state of the fabric. */
static void renew(struct gpu_state *state)
{
	memset(state->instances, 0, sizeof state->instances);
	state->time_slice = 0;
	state->compute_mode = NVML_COMPUTEMODE_DEFAULT;
	mig_now(state, state->pending_mig);
	state->remap_uncorrectable += state->remap_pending;
	state->remap_pending = 0;
	state->sensors.retired_multiple += state->retire_pending;
	state->retire_pending = 0;
	state->ecc_corrected = state->ecc_uncorrected = 0;
	state->links_down = 0;
	memset(state->link_errors, 0, sizeof state->link_errors);
	state->lost = 0;
	if (state->recovery_action == NVML_GPU_RECOVERY_ACTION_GPU_RESET || state->recovery_action == NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET)
		state->recovery_action = NVML_GPU_RECOVERY_ACTION_NONE;
	state->resets++;
}

static nvmlReturn_t resettable(nvmlDevice_t device, unsigned count, const nvmlDevice_t *devices, struct target *target)
{
	TRY(known_target(device, target));
	if (in_use(target))
		return NVML_ERROR_IN_USE;
	return alone(target, count, devices) ? NVML_ERROR_INVALID_STATE : NVML_SUCCESS;
}

nvmlReturn_t fakegpuReset(unsigned count, const nvmlDevice_t *devices, unsigned *refused)
{
	struct target target;

	ENTER();
	TRY(privileged());
	for (*refused = 0; *refused < count; ++*refused)
		TRY(resettable(devices[*refused], count, devices, &target));
	for (unsigned i = 0; i < count; i++) {
		TRY(known_target(devices[i], &target));
		gpu_busy_begin(target.gpu);
		renew(&state_begin()->gpus[target.gpu]);
		state_commit();
		gpu_busy_end(target.gpu);
	}
	return NVML_SUCCESS;
}
