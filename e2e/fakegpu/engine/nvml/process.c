/* Processes on a GPU: the fake knows that a GPU is held, not by whom, and lists none. */
#include "session.h"

#define EMPTY_LIST(name, type)                                                  \
	nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *list) \
	{                                                                       \
		struct target target;                                           \
                                                                                \
		(void)list;                                                     \
		ENTER_DEVICE(&target, count);                                   \
		*count = 0;                                                     \
		return NVML_SUCCESS;                                            \
	}

EMPTY_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)
