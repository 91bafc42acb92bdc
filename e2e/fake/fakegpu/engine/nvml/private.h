/* Functions that nvidia-smi uses and NVML does not export. */
#pragma once
#include "nvml.h"

#pragma GCC visibility push(default)
/*
 * fakegpuReset resets the GPUs, all or, when one refuses, none; refused is then its position. IN_USE: another process
 * has it open; INVALID_STATE: before Ampere, a GPU that it has NVLinks to is not named.
 */
nvmlReturn_t fakegpuReset(unsigned count, const nvmlDevice_t *devices, unsigned *refused);
/* The time slice: 0 default, 1 short, 2 medium, 3 long. */
nvmlReturn_t fakegpuSetTimeSlice(nvmlDevice_t device, unsigned interval);
nvmlReturn_t fakegpuGetTimeSlice(nvmlDevice_t device, unsigned *interval);
#pragma GCC visibility pop
