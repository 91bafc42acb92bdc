/* Modules and kernels: PTX that the interpreter understands, run on the host. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

#include "ptx.h"
#include "state.h"

struct CUfunc_st {
	struct CUmod_st *module;
	unsigned entry;
};

struct CUmod_st {
	struct program *program;
	struct CUfunc_st functions[4];
};

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	int major, minor, version;
	CUdevice device;

	REQUIRE(module && image);
	TRY(context_current(&device));
	TRY(cuDeviceGetAttribute(&major, 75, device));
	TRY(cuDeviceGetAttribute(&minor, 76, device));
	TRY(cuDriverGetVersion(&version));
	struct CUmod_st *made = calloc(1, sizeof *made);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = program_parse(image, version, 10 * major + minor, &made->program);
	if (result != CUDA_SUCCESS)
		free(made);
	else
		*module = made;
	return result;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	CUdevice device;

	REQUIRE(module);
	TRY(context_current(&device));
	program_free(module->program);
	free(module);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUdevice device;

	REQUIRE(function && module && name);
	TRY(context_current(&device));
	int entry = program_entry(module->program, name);
	if (entry < 0)
		return CUDA_ERROR_NOT_FOUND;
	module->functions[entry] = (struct CUfunc_st){.module = module, .entry = (unsigned)entry};
	*function = &module->functions[entry];
	return CUDA_SUCCESS;
}

/*
 * A kernel ends before its launch returns. As with the driver, an error inside of it is not the launch's: every later
 * call of the context returns it.
 */
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
			       unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra)
{
	struct launch launch = {.blocks = grid_x, .threads = block_x};
	CUdevice device;

	REQUIRE(function && grid_x && grid_y && grid_z && block_x && block_y && block_z);
	REQUIRE((size_t)block_x * block_y * block_z <= 1024);
	TRY(context_current(&device));
	if (grid_y * grid_z * block_y * block_z != 1 || shared || stream || extra)
		return CUDA_ERROR_NOT_SUPPORTED; /* by the fake */
	CUresult result = program_run(function->module->program, function->entry, launch, parameters);
	if (result != CUDA_ERROR_ILLEGAL_ADDRESS && result != CUDA_ERROR_MISALIGNED_ADDRESS && result != CUDA_ERROR_LAUNCH_TIMEOUT)
		return result;
	context_break(result);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
	static const struct { CUresult error; const char *name; } names[] = {
		{CUDA_SUCCESS, "CUDA_SUCCESS"}, {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
		{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"}, {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
		{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"}, {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
		{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"}, {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
		{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
		{CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
		{CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
		{CUDA_ERROR_MPS_CONNECTION_FAILED, "CUDA_ERROR_MPS_CONNECTION_FAILED"},
		{CUDA_ERROR_MPS_RPC_FAILURE, "CUDA_ERROR_MPS_RPC_FAILURE"},
		{CUDA_ERROR_MPS_SERVER_NOT_READY, "CUDA_ERROR_MPS_SERVER_NOT_READY"},
		{CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"},
		{CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
		{CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
		{CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
		{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
		{CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT"},
		{CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS"},
		{CUDA_ERROR_MPS_CLIENT_TERMINATED, "CUDA_ERROR_MPS_CLIENT_TERMINATED"},
	};

	REQUIRE(name);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].error == error) {
			*name = names[i].name;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) { return cuGetErrorName(error, text); }
