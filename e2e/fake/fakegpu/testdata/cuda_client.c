/*
 * A CUDA program for the tests. It prints the devices, and for every argument does something on the
 * first: "add" adds two vectors, "fill" allocates all memory and one byte more, "hold" makes a
 * context, says so, and keeps it until its input ends.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long pointer;

static void *library;

static void check(const char *what, int status)
{
	if (!status)
		return;
	printf("%s: error %d\n", what, status);
	exit(1);
}

#define CALL(name, ...) check(#name, ((int (*)())dlsym(library, #name))(__VA_ARGS__))

static const char ptx[] =
	".version 5.0\n.target sm_50\n.address_size 64\n"
	".visible .entry vecadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{ ret; }\n";

enum { N = 1000 };

static void add(void)
{
	static float in[N], out[N];
	pointer a, b, c;
	void *module, *function;
	int n = N;

	for (int i = 0; i < N; i++)
		in[i] = i;
	CALL(cuMemAlloc_v2, &a, sizeof in);
	CALL(cuMemAlloc_v2, &b, sizeof in);
	CALL(cuMemAlloc_v2, &c, sizeof in);
	CALL(cuMemcpyHtoD_v2, a, in, sizeof in);
	CALL(cuMemcpyHtoD_v2, b, in, sizeof in);
	CALL(cuModuleLoadData, &module, ptx);
	CALL(cuModuleGetFunction, &function, module, "vecadd");
	void *arguments[] = {&a, &b, &c, &n};
	CALL(cuLaunchKernel, function, 8, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL);
	CALL(cuCtxSynchronize, 0);
	CALL(cuMemcpyDtoH_v2, out, c, sizeof out);
	for (int i = 0; i < N; i++)
		if (out[i] != 2 * in[i])
			check("sum", 1);
	CALL(cuMemFree_v2, c);
	puts("added");
}

static void fill(void)
{
	size_t size, total;
	pointer all, more;

	CALL(cuMemGetInfo_v2, &size, &total);
	CALL(cuMemAlloc_v2, &all, size);
	CALL(cuMemAlloc_v2, &more, (size_t)1);
}

int main(int count, char **arguments)
{
	int devices, device;
	void *context;
	char name[160];
	unsigned char uuid[16];

	setlinebuf(stdout);
	library = dlopen(arguments[1], RTLD_NOW);
	if (!library) {
		puts(dlerror());
		return 1;
	}
	CALL(cuInit, 0);
	CALL(cuDeviceGetCount, &devices);
	for (int i = 0; i < devices; i++) {
		CALL(cuDeviceGetName, name, (int)sizeof name, i);
		CALL(cuDeviceGetUuid_v2, uuid, i);
		printf("%s %02x%02x%02x%02x\n", name, uuid[0], uuid[1], uuid[2], uuid[3]);
	}
	for (int i = 2; i < count; i++) {
		CALL(cuDeviceGet, &device, 0);
		CALL(cuCtxCreate_v2, &context, 0, device);
		if (!strcmp(arguments[i], "add"))
			add();
		if (!strcmp(arguments[i], "fill"))
			fill();
		if (!strcmp(arguments[i], "hold")) {
			puts("holding");
			getchar();
		}
		CALL(cuCtxDestroy_v2, context);
	}
	return 0;
}
