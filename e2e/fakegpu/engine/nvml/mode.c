/* Modes of a whole GPU: MIG, compute, persistence, and what runs on it. */
#include "session.h"

#include <string.h>

static nvmlReturn_t mig_capable(const struct target *target)
{
	return target->model->profile_count ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	struct target target;

	ENTER_GPU(&target, current && pending);
	TRY(mig_capable(&target));
	*current = target.state.mig;
	*pending = target.state.pending_mig;
	return NVML_SUCCESS;
}
