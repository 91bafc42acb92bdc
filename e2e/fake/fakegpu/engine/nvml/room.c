/* The remaining capacity of a GPU. */
#include "mig.h"

nvmlReturn_t mig_capable(const struct target *target)
{
	return target->model->profile_count ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t mig_enabled(const struct target *target)
{
	return target->state.mig ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t privileged(void)
{
	return state_writable() ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

bool legal_start(const uint32_t *starts, unsigned count, unsigned start)
{
	for (unsigned i = 0; i < count; i++)
		if (starts[i] == start)
			return true;
	return false;
}

static uint32_t window(unsigned start, unsigned size) { return ((1u << size) - 1) << start; }

/* The capacity that instances use. */
struct use {
	uint32_t memory; /* a bit per memory slice */
	uint32_t slices, copy, decoder, encoder, jpeg, ofa;
	uint32_t same; /* instances of one profile */
};

static void add(struct use *use, const struct profile_part *profile, unsigned start)
{
	use->memory |= window(start, profile->size);
	use->slices += profile->slices;
	use->copy += profile->copy;
	use->decoder += profile->decoder;
	use->encoder += profile->encoder;
	use->jpeg += profile->jpeg;
	use->ofa += profile->ofa;
}

static struct use used(const struct model_part *model, const struct gpu_state *state, unsigned profile)
{
	struct use use = {0};

	for (unsigned i = 0; i < MAX_INSTANCES; i++) {
		const struct instance *instance = &state->instances[i];
		if (!instance->used)
			continue;
		add(&use, profile_by_id(model, instance->profile), instance->start);
		use.same += instance->profile == profile;
	}
	return use;
}

nvmlReturn_t profile_fits(const struct model_part *model, const struct gpu_state *state,
			  const struct profile_part *profile, unsigned start)
{
	struct use use = used(model, state, profile->id);

	if (use.same >= profile->max_instances || use.memory & window(start, profile->size))
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	add(&use, profile, start);
	bool within = use.slices <= model->compute_slices && use.copy <= model->copy && use.decoder <= model->decoder &&
		      use.encoder <= model->encoder && use.jpeg <= model->jpeg && use.ofa <= model->ofa;
	return within ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t compute_fits(const struct instance *instance, const struct compute_part *profile, unsigned start)
{
	uint32_t taken = 0;

	for (unsigned i = 0; i < MAX_COMPUTES; i++)
		if (instance->computes[i].used)
			taken |= window(instance->computes[i].start, instance->computes[i].size);
	return taken & window(start, profile->slices) ? NVML_ERROR_INSUFFICIENT_RESOURCES : NVML_SUCCESS;
}
