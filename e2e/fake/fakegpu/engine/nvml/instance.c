/* GPU instances. */
#include "mig.h"
#include "fault.h"

#include <string.h>

/* ENTER_MIG begins the functions that require a partitioned GPU and the permission to manage it. */
#define ENTER_MIG(target, result) ENTER_GPU(target, result); TRY(privileged()); TRY(mig_enabled(target))
/* ENTER_CAPABLE begins those that have an answer with MIG off, too. */
#define ENTER_CAPABLE(target, result) ENTER_GPU(target, result); TRY(privileged()); TRY(mig_capable(target))

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count)
{
	struct target target;

	ENTER_CAPABLE(&target, count);
	const struct profile_part *profile = profile_by_id(target.model, id);
	if (!profile)
		return NVML_ERROR_NOT_SUPPORTED;
	struct gpu_state *state = &target.state;
	*count = 0;
	for (unsigned i = 0; i < profile->start_count; i++) {
		if (profile_fits(target.model, state, profile, profile->starts[i]) != NVML_SUCCESS)
			continue;
		++*count;
		for (unsigned free = 0; free < MAX_INSTANCES; free++)
			if (!state->instances[free].used) {
				state->instances[free] = (struct instance){
					.used = 1, .profile = id, .start = profile->starts[i], .size = profile->size};
				break;
			}
	}
	return NVML_SUCCESS;
}

/* choose_start returns the driver's choice: the highest slice that is free. */
static nvmlReturn_t choose_start(const struct model_part *model, const struct gpu_state *state,
				 const struct profile_part *profile, unsigned *start)
{
	for (unsigned i = profile->start_count; i-- > 0;) {
		*start = profile->starts[i];
		if (profile_fits(model, state, profile, *start) == NVML_SUCCESS)
			return NVML_SUCCESS;
	}
	return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

/*
 * choose_id numbers the instance. Ids are the nodes of a binary tree over the memory, the root is 0;
 * the two halves are numbered as they are made, 2 first.
 */
static unsigned choose_id(const struct model_part *model, const struct gpu_state *state,
			  const struct profile_part *profile, unsigned start)
{
	if (profile->size * 2 == model->memory_slices)
		return state->instances[2].used ? 1 : 2;
	return model->memory_slices / profile->size - 1 + start / profile->size;
}

/* find_room sets start unless the caller has placed the instance, and checks that it fits. */
static nvmlReturn_t find_room(const struct target *target, const struct gpu_state *state, const struct profile_part *profile,
			      bool placed, unsigned *start)
{
	if (!placed)
		return choose_start(target->model, state, profile, start);
	return profile_fits(target->model, state, profile, *start);
}

static nvmlReturn_t create(struct target *target, const struct profile_part *profile, bool placed, unsigned start,
			   nvmlGpuInstance_t *created)
{
	struct live_head head;

	live_gpu(target->gpu, &target->state);
	TRY(mig_enabled(target));
	TRY(find_room(target, &target->state, profile, placed, &start));
	live_head(&head);
	pause_ms(head.create_ms);
	struct live *live = state_begin();
	struct gpu_state *state = &live->gpus[target->gpu];
	if (!state->mig || profile_fits(target->model, state, profile, start) != NVML_SUCCESS) {
		state_abort(); /* the machine was rebooted meanwhile */
		return NVML_ERROR_UNKNOWN;
	}
	unsigned id = choose_id(target->model, state, profile, start);
	state->instances[id] = (struct instance){
		.serial = ++live->serial, .used = 1, .profile = profile->id, .start = start, .size = profile->size};
	target->state = *state;
	state_commit();
	*created = instance_handle(target, id);
	return NVML_SUCCESS;
}

/* create_locked blocks other changes of the GPU until the instance is created. */
static nvmlReturn_t create_locked(struct target *target, unsigned id, const nvmlGpuInstancePlacement_t *placement,
				  nvmlGpuInstance_t *created)
{
	const struct profile_part *profile = profile_by_id(target->model, id);

	REQUIRE(profile);
	if (placement)
		REQUIRE(placement->size == profile->size &&
			legal_start(profile->starts, profile->start_count, placement->start));
	gpu_busy_begin(target->gpu);
	nvmlReturn_t result = create(target, profile, placement != NULL, placement ? placement->start : 0, created);
	gpu_busy_end(target->gpu);
	return result;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *created)
{
	struct target target;

	ENTER_MIG(&target, created);
	return create_locked(&target, id, NULL, created);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
						      const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *created)
{
	struct target target;

	ENTER_MIG(&target, created && placement);
	return create_locked(&target, id, placement, created);
}

static bool has_computes(const struct instance *instance)
{
	for (unsigned i = 0; i < MAX_COMPUTES; i++)
		if (instance->computes[i].used)
			return true;
	return false;
}

static nvmlReturn_t destroy(nvmlGpuInstance_t handle, struct target *target)
{
	struct live_head head;

	TRY(instance_target(handle, target));
	if (has_computes(&target->state.instances[target->instance]) || held(target->gpu, target->instance, 0, MAX_COMPUTES))
		return NVML_ERROR_IN_USE;
	live_head(&head);
	pause_ms(head.destroy_ms);
	struct live *live = state_begin();
	struct instance *instance = &live->gpus[target->gpu].instances[target->instance];
	bool stale = instance->serial != target->state.instances[target->instance].serial || has_computes(instance);
	*instance = stale ? *instance : (struct instance){0};
	stale ? state_abort() : state_commit();
	return stale ? NVML_ERROR_IN_USE : NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle)
{
	struct target target;

	ENTER();
	TRY(instance_target(handle, &target));
	TRY(privileged());
	gpu_busy_begin(target.gpu);
	nvmlReturn_t result = destroy(handle, &target);
	gpu_busy_end(target.gpu);
	return result;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *list, unsigned int *count)
{
	struct target target;

	ENTER_CAPABLE(&target, list && count);
	REQUIRE(profile_by_id(target.model, id));
	*count = 0;
	for (unsigned i = 0; i < MAX_INSTANCES; i++)
		if (target.state.instances[i].used && target.state.instances[i].profile == id)
			list[(*count)++] = instance_handle(&target, i);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *handle)
{
	struct target target;

	ENTER_CAPABLE(&target, handle);
	REQUIRE(id < MAX_INSTANCES);
	if (!target.state.instances[id].used)
		return NVML_ERROR_NOT_FOUND;
	*handle = instance_handle(&target, id);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info)
{
	struct target target;

	ENTER();
	REQUIRE(info);
	TRY(instance_target(handle, &target));
	const struct instance *instance = &target.state.instances[target.instance];
	*info = (nvmlGpuInstanceInfo_t){
		.device = gpu_handle(target.gpu), .id = target.instance, .profileId = instance->profile,
		.placement = {instance->start, instance->size},
	};
	return NVML_SUCCESS;
}
