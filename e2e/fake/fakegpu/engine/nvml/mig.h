/* Rules of MIG that several files need. */
#pragma once
#include "session.h"

/* mig_capable is NVML_ERROR_NOT_SUPPORTED on a GPU without MIG, mig_enabled also while it is off. */
nvmlReturn_t mig_capable(const struct target *target);
nvmlReturn_t mig_enabled(const struct target *target);

/* resetless_mig reports whether the MIG mode changes without a reset of the GPU. */
bool resetless_mig(const struct target *target);

/* mig_now makes a MIG mode current. With MIG on, the compute mode is the default and stays so. */
void mig_now(struct gpu_state *state, unsigned mode);

/* privileged returns an error in containers. */
nvmlReturn_t privileged(void);

/* profile_fits reports whether the state has room for one more of the profile from the slice on. */
nvmlReturn_t profile_fits(const struct model_part *model, const struct gpu_state *state,
			  const struct profile_part *profile, unsigned start);

/* compute_fits reports the same for a compute instance in a GPU instance. */
nvmlReturn_t compute_fits(const struct instance *instance, const struct compute_part *profile, unsigned start);
bool legal_start(const uint32_t *starts, unsigned count, unsigned start);
