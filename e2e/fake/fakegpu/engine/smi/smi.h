/* nvidia-smi over the libnvidia-ml.so.1 that the system finds. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"
#include "nvml/private.h"

#define FUNCTIONS(X)                                                                                           \
	X(nvmlInit_v2) X(nvmlShutdown) X(nvmlErrorString)                                                      \
	X(nvmlSystemGetDriverVersion) X(nvmlSystemGetCudaDriverVersion_v2)                                     \
	X(nvmlDeviceGetCount_v2) X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetHandleByUUID)                 \
	X(nvmlDeviceGetHandleByPciBusId_v2) X(nvmlDeviceGetIndex) X(nvmlDeviceGetName) X(nvmlDeviceGetUUID)    \
	X(nvmlDeviceGetSerial) X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetPciInfo_v3) X(nvmlDeviceGetBrand)    \
	X(nvmlDeviceSetPersistenceMode)                                                                        \
	X(nvmlDeviceGetMemoryInfo_v2) X(nvmlDeviceGetCudaComputeCapability) X(nvmlDeviceGetPersistenceMode)       \
	X(nvmlDeviceGetComputeMode) X(nvmlDeviceSetComputeMode) X(nvmlDeviceGetEccMode) X(nvmlDeviceGetMigMode) X(nvmlDeviceSetMigMode)    \
	X(nvmlDeviceGetMigDeviceHandleByIndex) X(nvmlDeviceGetGpuInstanceId) X(nvmlDeviceGetComputeInstanceId) \
	X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetGpuInstanceProfileInfoV)                              \
	X(nvmlDeviceGetGpuInstancePossiblePlacements_v2) X(nvmlDeviceGetGpuInstanceRemainingCapacity)          \
	X(nvmlDeviceGetGpuInstanceById) X(nvmlDeviceCreateGpuInstance)                                         \
	X(nvmlDeviceCreateGpuInstanceWithPlacement) X(nvmlGpuInstanceDestroy) X(nvmlGpuInstanceGetInfo)        \
	X(nvmlGpuInstanceGetComputeInstanceProfileInfoV) X(nvmlGpuInstanceGetComputeInstanceRemainingCapacity) \
	X(nvmlGpuInstanceCreateComputeInstance) X(nvmlGpuInstanceGetComputeInstanceById)                       \
	X(nvmlComputeInstanceGetInfo_v2) X(nvmlComputeInstanceDestroy)                                         \
	X(fakegpuReset) X(fakegpuSetTimeSlice) X(fakegpuGetTimeSlice)

/* nv holds NVML's functions under their own names. */
#define POINTER(name) typeof(name) *name;
extern struct nv { FUNCTIONS(POINTER) } nv;
#undef POINTER

/* load begins a session; it ends the program when it cannot. */
void load(void);

/* fail prints an error and ends the program with NVML's code. */
void fail(nvmlReturn_t code, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
/* check fails unless the call was successful. */
void check(nvmlReturn_t code, const char *what);

/* The command line: option finds "-x", "--long", or "--long=value" and takes it and its value. */
struct arguments { int count; char **list; };
bool flag(struct arguments *arguments, const char *brief, const char *verbose);
const char *option(struct arguments *arguments, const char *brief, const char *verbose);
/* optional is an option whose value may be missing; it is "" then. */
const char *optional(struct arguments *arguments, const char *brief, const char *verbose);
/* none_left fails when an argument was not parsed. */
void none_left(struct arguments *arguments);

/* The GPUs that -i names, by index, UUID or bus id, or all. */
struct gpus { unsigned count; nvmlDevice_t list[64]; };
struct gpus select_gpus(const char *names);
unsigned index_of(nvmlDevice_t device);
const char *bus_id(nvmlDevice_t device);

/* A GPU instance profile with its capacity and names. */
struct profile { nvmlGpuInstanceProfileInfo_v2_t info; unsigned free, count; nvmlGpuInstancePlacement_t placements[32]; };
/* profiles lists those of a GPU, small ones first. */
unsigned profiles(nvmlDevice_t device, struct profile *list, unsigned room);
enum { MOST_PROFILES = 32, MOST_INSTANCES = 16, MOST_COMPUTES = 8 };

/* The commands. */
void command_list(struct gpus gpus);
void command_query(struct gpus gpus);
void command_fields(struct gpus gpus, const char *fields, const char *format);
void command_overview(struct gpus gpus);
void command_mig(struct arguments *arguments);
void command_mig_mode(struct gpus gpus, const char *mode);
void command_compute_mode(struct gpus gpus, const char *mode);
void command_reset(struct gpus gpus);
void command_persistence(struct gpus gpus, const char *mode);
void command_policy(struct arguments *arguments);
bool mig_lists(struct arguments *arguments, struct gpus gpus);
void mig_changes(struct arguments *arguments, struct gpus gpus);
