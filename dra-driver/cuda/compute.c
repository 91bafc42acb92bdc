#include "compute.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// 1,024 blocks occupy every multiprocessor of a GPU.
enum { blocks = 1024, threads = 256, elements = blocks * threads, size = elements * sizeof(uint32_t) };

typedef unsigned long long pointer;

// The functions of the driver API in use, by the names that the library exports (cuda.h maps those without a suffix).
static struct {
	int (*error_name)(int, const char **);
	int (*init)(unsigned);
	int (*count)(int *);
	int (*get)(int *, int);
	int (*uuid)(unsigned char *, int);
	int (*create)(void **, unsigned, int);
	int (*destroy)(void *);
	int (*alloc)(pointer *, size_t);
	int (*release)(pointer);
	int (*to_device)(pointer, const void *, size_t);
	int (*to_host)(void *, pointer, size_t);
	int (*load)(void **, const void *);
	int (*function)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
	int (*synchronize)(void);
} cuda;

static const struct {
	const char *name;
	void **address;
} symbols[] = {
	{"cuGetErrorName", (void **)&cuda.error_name},
	{"cuInit", (void **)&cuda.init},
	{"cuDeviceGetCount", (void **)&cuda.count},
	{"cuDeviceGet", (void **)&cuda.get},
	{"cuDeviceGetUuid_v2", (void **)&cuda.uuid},
	{"cuCtxCreate_v2", (void **)&cuda.create},
	{"cuCtxDestroy_v2", (void **)&cuda.destroy},
	{"cuMemAlloc_v2", (void **)&cuda.alloc},
	{"cuMemFree_v2", (void **)&cuda.release},
	{"cuMemcpyHtoD_v2", (void **)&cuda.to_device},
	{"cuMemcpyDtoH_v2", (void **)&cuda.to_host},
	{"cuModuleLoadData", (void **)&cuda.load},
	{"cuModuleGetFunction", (void **)&cuda.function},
	{"cuLaunchKernel", (void **)&cuda.launch},
	{"cuCtxSynchronize", (void **)&cuda.synchronize},
};

static int fail(struct tessera_cuda_failure *f, const char *step, const char *detail)
{
	f->step = step;
	snprintf(f->detail, sizeof f->detail, "%s", detail ? detail : "");
	return -1;
}

// returned checks the result of a call.
static int returned(struct tessera_cuda_failure *f, const char *call, int code)
{
	const char *name = NULL;

	if (code == 0)
		return 0;
	f->code = code;
	if (cuda.error_name(code, &name) == 0 && name != NULL)
		snprintf(f->name, sizeof f->name, "%s", name);
	return fail(f, call, NULL);
}

static int bind(const char *path, struct tessera_cuda_failure *f)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (library == NULL)
		return fail(f, "dlopen", dlerror());
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
		if ((*symbols[i].address = dlsym(library, symbols[i].name)) == NULL)
			return fail(f, "dlsym", dlerror());
	return 0;
}

// open_device makes a context on the only device of the process.
static int open_device(const unsigned char *want, void **context, struct tessera_cuda_failure *f)
{
	unsigned char uuid[16];
	int count = 0, device = 0;

	if (returned(f, "cuInit", cuda.init(0)) || returned(f, "cuDeviceGetCount", cuda.count(&count)))
		return -1;
	if (count != 1) {
		snprintf(f->detail, sizeof f->detail, "CUDA lists %d devices instead of one", count);
		f->step = "cuDeviceGetCount";
		return -1;
	}
	if (returned(f, "cuDeviceGet", cuda.get(&device, 0)) || returned(f, "cuDeviceGetUuid", cuda.uuid(uuid, device)))
		return -1;
	if (memcmp(uuid, want, sizeof uuid) != 0)
		return fail(f, "cuDeviceGetUuid", "CUDA lists another device");
	return returned(f, "cuCtxCreate", cuda.create(context, 0, device));
}

// same compares what the device returned with what it should have, element by element.
static int same(struct tessera_cuda_failure *f, const char *step, const uint32_t *got, const uint32_t *want)
{
	for (size_t i = 0; i < elements; i++)
		if (got[i] != want[i]) {
			snprintf(f->detail, sizeof f->detail, "word %zu of %d is 0x%08x instead of 0x%08x", i, elements, got[i], want[i]);
			f->step = step;
			return -1;
		}
	return 0;
}

// copy moves the input to the device and back.
static int copy(pointer in, const uint32_t *input, uint32_t *output, struct tessera_cuda_failure *f)
{
	if (returned(f, "cuMemcpyHtoD", cuda.to_device(in, input, size)) || returned(f, "cuMemcpyDtoH", cuda.to_host(output, in, size)))
		return -1;
	return same(f, "compare the copied memory", output, input);
}

// run computes the output from the input on the device.
static int run(const char *ptx, pointer in, pointer out, uint32_t *output, struct tessera_cuda_failure *f)
{
	void *module, *function;
	void *arguments[] = {&in, &out};

	if (returned(f, "cuModuleLoadData", cuda.load(&module, ptx)) ||
	    returned(f, "cuModuleGetFunction", cuda.function(&function, module, "tessera_validate")) ||
	    returned(f, "cuLaunchKernel", cuda.launch(function, blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL)) ||
	    returned(f, "cuCtxSynchronize", cuda.synchronize()))
		return -1;
	return returned(f, "cuMemcpyDtoH", cuda.to_host(output, out, size));
}

static int compute(const char *ptx, struct tessera_cuda_failure *f)
{
	static uint32_t input[elements], output[elements], want[elements];
	pointer in, out;

	for (uint32_t i = 0; i < elements; i++) {
		input[i] = i * 2246822519u + 3266489917u;
		want[i] = input[i] * 2654435761u + i;
	}
	if (returned(f, "cuMemAlloc", cuda.alloc(&in, size)) || returned(f, "cuMemAlloc", cuda.alloc(&out, size)))
		return -1;
	if (copy(in, input, output, f) || run(ptx, in, out, output, f) || same(f, "compare the kernel's result", output, want))
		return -1;
	return returned(f, "cuMemFree", cuda.release(in)) || returned(f, "cuMemFree", cuda.release(out)) ? -1 : 0;
}

int tessera_cuda_compute(const char *library, const char *ptx, const unsigned char *uuid, struct tessera_cuda_failure *failure)
{
	void *context;

	if (bind(library, failure) || open_device(uuid, &context, failure) || compute(ptx, failure))
		return -1;
	return returned(failure, "cuCtxDestroy", cuda.destroy(context));
}
