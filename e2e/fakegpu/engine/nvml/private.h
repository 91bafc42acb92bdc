/* What nvidia-smi can do and NVML's public functions cannot. */
#pragma once
#include "nvml.h"

#pragma GCC visibility push(default)
/* fakegpuReset resets the GPU: instances are gone, the pending MIG mode is current. */
nvmlReturn_t fakegpuReset(nvmlDevice_t device);
/* The time slice: 0 default, 1 short, 2 medium, 3 long. */
nvmlReturn_t fakegpuSetTimeSlice(nvmlDevice_t device, unsigned interval);
nvmlReturn_t fakegpuGetTimeSlice(nvmlDevice_t device, unsigned *interval);
#pragma GCC visibility pop
