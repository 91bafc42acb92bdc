/* The part of the CUDA driver API that the fake has: devices, contexts, memory, and one kernel. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct { unsigned char bytes[16]; } CUuuid;

#define EXPORT __attribute__((visibility("default")))

#define TRY(call)                              \
	do {                                   \
		CUresult result_ = (call);     \
		if (result_ != CUDA_SUCCESS)   \
			return result_;        \
	} while (0)
#define REQUIRE(condition) TRY((condition) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)

/* A device of this process: a GPU, or one MIG device. */
struct device {
	unsigned gpu;
	bool mig;
	unsigned instance, compute;
	char name[160];
	unsigned char uuid[16], gpu_uuid[16];
	unsigned long long memory;
	unsigned multiprocessors;
};

/* device_get returns a device after cuInit. */
CUresult device_get(CUdevice number, struct device **device);

/* context_current returns the number of the device whose context is current in this thread. */
CUresult context_current(CUdevice *number);

/* memory_inside checks that a range lies in one allocation of this process. */
CUresult memory_inside(CUdeviceptr at, size_t size);
