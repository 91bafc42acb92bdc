/* The part of the CUDA driver API that the fake implements: devices, contexts, memory, and
 * kernels in a part of PTX. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_MISALIGNED_ADDRESS = 716,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_ERROR_MPS_CONNECTION_FAILED = 805,
	CUDA_ERROR_MPS_RPC_FAILURE = 806,
	CUDA_ERROR_MPS_SERVER_NOT_READY = 807,
	CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = 808,
	CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
	CUDA_ERROR_UNKNOWN = 999,
} CUresult;

enum { CU_MEM_ATTACH_GLOBAL = 1, CU_MEM_ATTACH_HOST = 2, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;

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
	/* For a client of MPS: the server's number of the device, and the limit in the client's
	 * environment. */
	unsigned served;
	unsigned long long limit;
};

/*
 * MPS. A process is a client when a control daemon listens as it starts; from then on it depends on
 * the server. mps_connect connects to it; mps_client reports whether the process is a client.
 */
CUresult mps_connect(void);
bool mps_client(void);
/* mps_device applies the server's limits to a device; false when the server does not have it. */
bool mps_device(struct device *device, unsigned number);
/* mps_alive returns the state of the server: CUDA_SUCCESS, or the error of every further call. */
CUresult mps_alive(void);
/* mps_memory takes or gives back memory and returns how much can be taken after that. */
CUresult mps_memory(const char *verb, const struct device *device, size_t size, unsigned long long *room);

/* device_uuid writes the UUID as text. */
void device_uuid(const struct device *device, char *text, size_t size);

/* device_get returns a device after cuInit. */
CUresult device_get(CUdevice number, struct device **device);

/* context_current returns the number of the device whose context is current in this thread. */
CUresult context_current(CUdevice *number);

/* context_break makes every later call in the current context return an error of a kernel. */
void context_break(CUresult result);

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDriverGetVersion(int *version);

/* memory_inside checks that a range lies in one allocation of this process. */
CUresult memory_inside(CUdeviceptr at, size_t size);
