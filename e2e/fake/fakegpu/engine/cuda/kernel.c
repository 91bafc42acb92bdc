/*
 * Kernels. The fake does not compile PTX: a kernel named "add" or "vecadd" is c[i] = a[i] +
 * b[i] over floats, one per thread or the number given as fourth parameter, computed on the
 * host.
 */
#include "cuda.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st {
	unsigned parameters;
};

struct CUmod_st {
	struct CUfunc_st function;
	char name[16];
};

static const char *const known[] = {"add", "vecadd"};

/* find_entry looks for ".entry name(" and returns what follows the parenthesis. */
static const char *find_entry(const char *ptx, const char *name)
{
	for (const char *at = strstr(ptx, ".entry"); at; at = strstr(at, ".entry")) {
		at += strlen(".entry");
		while (isspace((unsigned char)*at))
			at++;
		size_t length = strlen(name);
		if (strncmp(at, name, length))
			continue;
		at += length;
		while (isspace((unsigned char)*at))
			at++;
		if (*at == '(')
			return at + 1;
	}
	return NULL;
}

static unsigned count_parameters(const char *list)
{
	const char *end = strchr(list, ')');
	unsigned count = 0;

	for (const char *at = strstr(list, ".param"); at && end && at < end; at = strstr(at + 1, ".param"))
		count++;
	return count;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	CUdevice device;

	REQUIRE(module && image);
	TRY(context_current(&device));
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		const char *parameters = find_entry(image, known[i]);
		if (!parameters)
			continue;
		*module = calloc(1, sizeof **module);
		if (!*module)
			return CUDA_ERROR_OUT_OF_MEMORY;
		strcpy((*module)->name, known[i]);
		(*module)->function.parameters = count_parameters(parameters);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	REQUIRE(module);
	free(module);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	REQUIRE(function && module && name);
	*function = &module->function;
	return strcmp(module->name, name) ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
			       unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra)
{
	CUdevice device;

	(void)shared;
	(void)stream;
	REQUIRE(function && parameters && !extra && function->parameters >= 3 && function->parameters <= 4);
	REQUIRE(block_x && (size_t)block_x * block_y * block_z <= 1024);
	TRY(context_current(&device));
	CUdeviceptr vector[3];
	for (unsigned i = 0; i < 3; i++)
		vector[i] = *(CUdeviceptr *)parameters[i];
	size_t threads = (size_t)grid_x * grid_y * grid_z * block_x * block_y * block_z;
	size_t count = function->parameters == 4 ? *(unsigned *)parameters[3] : threads;
	count = count < threads ? count : threads;
	for (unsigned i = 0; i < 3; i++)
		TRY(memory_inside(vector[i], count * sizeof(float)));
	const float *a = (const float *)(uintptr_t)vector[0], *b = (const float *)(uintptr_t)vector[1];
	float *c = (float *)(uintptr_t)vector[2];
	for (size_t i = 0; i < count; i++)
		c[i] = a[i] + b[i];
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
