/*
 * A libcuda with one device of host memory that runs the validation's kernel. DEFECT makes it wrong in one way:
 * "copy" changes a word of what is copied to the host, "kernel" does not compute the last element, "devices" lists
 * two devices, "other" is another device, and a number is the error of cuCtxSynchronize.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 20 };

static int is(const char *defect)
{
	const char *set = getenv("DEFECT");
	return set && !strcmp(set, defect);
}

int cuGetErrorName(int code, const char **name) { return *name = code == 214 ? "CUDA_ERROR_ECC_UNCORRECTABLE" : "CUDA_ERROR_UNKNOWN", 0; }
int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGetCount(int *count) { return *count = is("devices") ? 2 : 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return memset(uuid, is("other") ? 2 : 1, 16), device; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { return *context = context, (int)flags + device; }
int cuCtxDestroy_v2(void *context) { return context ? 0 : 1; }
int cuMemAlloc_v2(unsigned long long *pointer, size_t size) { return *pointer = (unsigned long long)(uintptr_t)calloc(1, size), 0; }
int cuMemFree_v2(unsigned long long pointer) { return free((void *)(uintptr_t)pointer), 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { return memcpy((void *)(uintptr_t)to, from, size), 0; }
int cuModuleLoadData(void **module, const void *image) { return *module = (void *)image, 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { return *function = strstr(module, name), *function ? 0 : 500; }

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size)
{
	memcpy(to, (void *)(uintptr_t)from, size);
	if (is("copy"))
		((uint32_t *)to)[7] ^= 1u << 3;
	return 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
		   void *stream, void **arguments, void **extra)
{
	const uint32_t *in = *(uint32_t **)arguments[0];
	uint32_t *out = *(uint32_t **)arguments[1], count = gx * gy * gz * bx * by * bz - is("kernel");

	for (uint32_t i = 0; i < count; i++)
		out[i] = in[i] * 2654435761u + i;
	return !function || shared || stream || extra;
}

int cuCtxSynchronize(void)
{
	const char *defect = getenv("DEFECT");
	return defect ? atoi(defect) : 0;
}
