/* Rules of MIG that more than one file needs. */
#pragma once
#include "session.h"

/* mig_capable is NVML_ERROR_NOT_SUPPORTED on a GPU without MIG, mig_enabled also while it is off. */
nvmlReturn_t mig_capable(const struct target *target);
nvmlReturn_t mig_enabled(const struct target *target);

/* mig_now makes a MIG mode current. With MIG on, the compute mode is the default and stays so. */
void mig_now(struct gpu_state *state, unsigned mode);

/* privileged refuses containers. */
nvmlReturn_t privileged(void);

/* profile_fits says whether the state has room for one more of the profile from the slice on. */
nvmlReturn_t profile_fits(const struct model_part *model, const struct gpu_state *state,
			  const struct profile_part *profile, unsigned start);

/* compute_fits says the same of a compute instance in a GPU instance. */
nvmlReturn_t compute_fits(const struct instance *instance, const struct compute_part *profile, unsigned start);
bool legal_start(const uint32_t *starts, unsigned count, unsigned start);
