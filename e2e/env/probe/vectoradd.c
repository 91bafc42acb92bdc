// Adds two vectors on the first CUDA device and checks the sum. Ends with "Test PASSED" or "Test FAILED",
// as NVIDIA's sample of that name does.
#include "probe.h"

#include <stdio.h>

enum { elements = 4096, threads = 256, size = elements * sizeof(float) };

typedef unsigned long long pointer;

static struct {
	int (*init)(unsigned);
	int (*count)(int *);
	int (*get)(int *, int);
	int (*name)(char *, int, int);
	int (*create)(void **, unsigned, int);
	int (*alloc)(pointer *, size_t);
	int (*free)(pointer);
	int (*toDevice)(pointer, const void *, size_t);
	int (*toHost)(void *, pointer, size_t);
	int (*load)(void **, const void *);
	int (*function)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
	int (*synchronize)(void);
} cuda;

// c[i] = a[i] + b[i], for every GPU since Maxwell: the driver compiles it at load time.
static const char kernel[] = ".version 5.0\n"
			     ".target sm_50\n"
			     ".address_size 64\n"
			     ".visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pc) {\n"
			     " .reg .b32 %r<5>; .reg .f32 %f<4>; .reg .b64 %d<8>;\n"
			     " ld.param.u64 %d1, [pa]; ld.param.u64 %d2, [pb]; ld.param.u64 %d3, [pc];\n"
			     " mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
			     " mad.lo.s32 %r4, %r1, %r2, %r3;\n"
			     " mul.wide.s32 %d4, %r4, 4;\n"
			     " add.s64 %d5, %d1, %d4; add.s64 %d6, %d2, %d4; add.s64 %d7, %d3, %d4;\n"
			     " ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6];\n"
			     " add.f32 %f3, %f1, %f2;\n"
			     " st.global.f32 [%d7], %f3;\n"
			     " ret;\n"
			     "}\n";

static int bind(void) {
	void *l = library("libcuda.so.1");
	if (l == NULL)
		return -1;
	return (cuda.init = symbol(l, "cuInit")) == NULL ||
	       (cuda.count = symbol(l, "cuDeviceGetCount")) == NULL ||
	       (cuda.get = symbol(l, "cuDeviceGet")) == NULL ||
	       (cuda.name = symbol(l, "cuDeviceGetName")) == NULL ||
	       (cuda.create = symbol(l, "cuCtxCreate_v2")) == NULL ||
	       (cuda.alloc = symbol(l, "cuMemAlloc_v2")) == NULL ||
	       (cuda.free = symbol(l, "cuMemFree_v2")) == NULL ||
	       (cuda.toDevice = symbol(l, "cuMemcpyHtoD_v2")) == NULL ||
	       (cuda.toHost = symbol(l, "cuMemcpyDtoH_v2")) == NULL ||
	       (cuda.load = symbol(l, "cuModuleLoadData")) == NULL ||
	       (cuda.function = symbol(l, "cuModuleGetFunction")) == NULL ||
	       (cuda.launch = symbol(l, "cuLaunchKernel")) == NULL ||
	       (cuda.synchronize = symbol(l, "cuCtxSynchronize")) == NULL;
}

// ok reports whether a call succeeded, and says on stderr which one did not.
static int ok(const char *call, int status) {
	if (status != 0)
		fprintf(stderr, "%s: CUDA error %d\n", call, status);
	return status == 0;
}

// open makes a context on the first device.
static int open(void) {
	int n = 0, device = 0;
	void *context;
	char name[96] = "";
	if (!ok("cuInit", cuda.init(0)) || !ok("cuDeviceGetCount", cuda.count(&n)))
		return 0;
	printf("CUDA devices: %d\n", n);
	if (!ok("cuDeviceGet", cuda.get(&device, 0)) || !ok("cuDeviceGetName", cuda.name(name, sizeof name, device)))
		return 0;
	printf("Adding %d numbers on %s\n", elements, name);
	return ok("cuCtxCreate", cuda.create(&context, 0, device));
}

// launch runs the kernel on three vectors of the device and fetches the third.
static int launch(void *module, pointer *vectors, float *c) {
	void *function;
	void *arguments[] = {&vectors[0], &vectors[1], &vectors[2]};
	return ok("cuModuleGetFunction", cuda.function(&function, module, "add")) &&
	       ok("cuLaunchKernel", cuda.launch(function, elements / threads, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL)) &&
	       ok("cuCtxSynchronize", cuda.synchronize()) && ok("cuMemcpyDtoH", cuda.toHost(c, vectors[2], size));
}

// add computes c = a + b from vectors in device memory.
static int add(const float *a, const float *b, float *c) {
	pointer vectors[3];
	void *module;
	for (int i = 0; i < 3; i++)
		if (!ok("cuMemAlloc", cuda.alloc(&vectors[i], size)))
			return 0;
	if (!ok("cuMemcpyHtoD", cuda.toDevice(vectors[0], a, size)) || !ok("cuMemcpyHtoD", cuda.toDevice(vectors[1], b, size)))
		return 0;
	int done = ok("cuModuleLoadData", cuda.load(&module, kernel)) && launch(module, vectors, c);
	for (int i = 0; i < 3; i++)
		done = ok("cuMemFree", cuda.free(vectors[i])) && done;
	return done;
}

int vectoradd(void) {
	static float a[elements], b[elements], c[elements];
	for (int i = 0; i < elements; i++) {
		a[i] = (float)i;
		b[i] = (float)(2 * i);
	}
	int right = bind() == 0 && open() && add(a, b, c);
	for (int i = 0; right && i < elements; i++)
		right = c[i] == a[i] + b[i];
	puts(right ? "Test PASSED" : "Test FAILED");
	return right ? 0 : 1;
}
