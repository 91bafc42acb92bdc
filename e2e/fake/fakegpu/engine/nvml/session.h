/* The base of every NVML function: the session, injected faults, and the resolution of handles. */
#pragma once
#include <stdbool.h>

#pragma GCC visibility push(default)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"
#pragma GCC visibility pop

#include "state.h"
#include "view.h"

#define TRY(call)                                 \
	do {                                      \
		nvmlReturn_t result_ = (call);    \
		if (result_ != NVML_SUCCESS)      \
			return result_;           \
	} while (0)

/* REQUIRE checks the caller's arguments. */
#define REQUIRE(condition) TRY((condition) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT)

/* ENTER begins every function that needs a session. */
#define ENTER() TRY(enter(__func__))

nvmlReturn_t enter(const char *function);

/* session_alive ends a session whose driver was unloaded. */
nvmlReturn_t session_alive(void);

/* called writes the call log and applies FAKE_NVML_FAIL; enter calls it for all other functions. */
nvmlReturn_t called(const char *function);

/* write_text copies text to a caller's buffer. */
nvmlReturn_t write_text(char *buffer, unsigned size, const char *text);

/* pci_text writes the texts of an address from its numbers. */
void pci_text(nvmlPciInfo_t *pci);

/* The values of gpu_state.lost: the GPU has fallen off the bus, or it rejects every call until it
 * is reset. */
enum { FALLEN_OFF = 1, RESET_REQUIRED = 2 };

/* The current state of a GPU, or of a MIG device on it. */
struct target {
	unsigned gpu;
	const struct gpu_part *part;
	const struct model_part *model;
	struct gpu_state state;
	bool mig;
	unsigned instance, compute; /* of a MIG device */
};

/* device_target resolves a handle; gpu_target refuses that of a MIG device. */
nvmlReturn_t device_target(nvmlDevice_t device, struct target *target);
nvmlReturn_t gpu_target(nvmlDevice_t device, struct target *target);
/* known_target is gpu_target also for a GPU that rejects every call until it is reset. */
nvmlReturn_t known_target(nvmlDevice_t device, struct target *target);
nvmlReturn_t instance_target(nvmlGpuInstance_t handle, struct target *target);
nvmlReturn_t compute_target(nvmlComputeInstance_t handle, struct target *target);

nvmlDevice_t gpu_handle(unsigned gpu);
nvmlDevice_t mig_handle(const struct target *target, unsigned instance, unsigned compute);
nvmlGpuInstance_t instance_handle(const struct target *target, unsigned instance);
nvmlComputeInstance_t compute_handle(const struct target *target, unsigned instance, unsigned compute);

/* ENTER_GPU and ENTER_DEVICE begin the functions with a parameter "device": a GPU, or either kind. */
#define ENTER_GPU(target, result) ENTER(); REQUIRE(result); TRY(gpu_target(device, target))
#define ENTER_DEVICE(target, result) ENTER(); REQUIRE(result); TRY(device_target(device, target))

/* The GPUs of this session, in order. */
unsigned session_count(void);
unsigned session_gpu(unsigned index);

/* The profiles by id; NULL when the GPU does not have the profile. */
const struct profile_part *profile_by_id(const struct model_part *model, unsigned id);
const struct compute_part *compute_by_id(const struct profile_part *profile, unsigned id);

/* mig_name writes the name of a compute instance's profile, such as "MIG 1c.3g.40gb". */
void mig_name(char *buffer, size_t size, const struct profile_part *profile, const struct compute_part *compute);
void mig_uuid(char *buffer, size_t size, const struct compute *compute);
