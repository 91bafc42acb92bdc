/*
 * A CUDA program for the tests. It prints the devices, and for every argument does something on the
 * first: "add" adds two vectors, "fill" allocates all memory and one byte more, "allocate=N" N MiB, "managed=N" N MiB of managed memory, "load=N" keeps
 * the device busy for N seconds, "memory" prints what is free and all in MiB, "share"
 * the multiprocessors and what is free, "keep=N" allocates N MiB, keeps them until its input ends and prints "memory", "export=N" prints their handle instead,
 * "import=HANDLE" opens one, prints "memory" and keeps it until its input ends, "hold" makes a context, says so, and keeps it until its input ends. The other
 * verbs are misuses, which the driver refuses.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

#define HEADER(version, target) ".version " version "\n.target " target "\n.address_size 64\n"

static const char ptx[] =
	HEADER("5.0", "sm_50")
	".visible .entry vecadd(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)\n{\n"
	" .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<8>;\n"
	" ld.param.u64 %d1, [pa]; ld.param.u64 %d2, [pb]; ld.param.u64 %d3, [pc]; ld.param.u32 %r5, [pn];\n"
	" mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
	" mad.lo.s32 %r4, %r1, %r2, %r3; // the thread\n"
	" setp.ge.u32 %p1, %r4, %r5;\n"
	"@%p1 bra $done;\n"
	" mul.wide.u32 %d4, %r4, 4;\n"
	" add.s64 %d5, %d1, %d4; add.s64 %d6, %d2, %d4; add.s64 %d7, %d3, %d4;\n"
	" ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6]; add.f32 %f3, %f1, %f2; st.global.f32 [%d7], %f3;\n"
	"$done: ret;\n}\n";

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
	CALL(cuCtxSynchronize);
	CALL(cuMemcpyDtoH_v2, out, c, sizeof out);
	for (int i = 0; i < N; i++)
		if (out[i] != 2 * in[i])
			check("sum", 1);
	CALL(cuMemFree_v2, a);
	CALL(cuMemFree_v2, b);
	CALL(cuMemFree_v2, c);
	CALL(cuModuleUnload, module);
}

static void fill(void)
{
	size_t size, total;
	pointer all, more;

	CALL(cuMemGetInfo_v2, &size, &total);
	CALL(cuMemAlloc_v2, &all, size);
	CALL(cuMemAlloc_v2, &more, (size_t)1);
}

static void memory(void)
{
	size_t available, total;

	CALL(cuMemGetInfo_v2, &available, &total);
	printf("%zu of %zu MiB\n", available >> 20, total >> 20);
}

static void share(int device)
{
	size_t available, total;
	int multiprocessors;

	CALL(cuDeviceGetAttribute, &multiprocessors, 16 /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */, device);
	CALL(cuMemGetInfo_v2, &available, &total);
	printf("%d multiprocessors, %zu MiB free\n", multiprocessors, available >> 20);
}

static void allocate(size_t mib)
{
	pointer memory;

	CALL(cuMemAlloc_v2, &memory, mib << 20);
	puts("allocated");
}

struct handle { unsigned char bytes[64]; };

static void export(size_t mib)
{
	struct handle handle;
	pointer memory;

	CALL(cuMemAlloc_v2, &memory, mib << 20);
	CALL(cuIpcGetMemHandle, &handle, memory);
	for (size_t i = 0; i < sizeof handle; i++)
		printf("%02x", handle.bytes[i]);
	puts("");
	getchar();
}

static void import(const char *text)
{
	struct handle handle;
	pointer imported, again;

	for (size_t i = 0; i < sizeof handle; i++)
		sscanf(text + 2 * i, "%2hhx", &handle.bytes[i]);
	CALL(cuIpcOpenMemHandle_v2, &imported, handle, 1 /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */);
	CALL(cuIpcOpenMemHandle_v2, &again, handle, 1);
	CALL(cuIpcCloseMemHandle, again);
	memory();
	getchar();
	CALL(cuIpcCloseMemHandle, imported);
}

/* load loads PTX that is an entry named add with a body. */
static void load(const char *header, const char *body)
{
	char text[512];
	void *module;

	snprintf(text, sizeof text, "%s.visible .entry add(.param .u64 a) { .reg .b32 %%r<2>; .reg .b64 %%d<2>; %s }", header, body);
	CALL(cuModuleLoadData, &module, text);
}

/* outside runs a kernel that writes where nothing is allocated. */
static void outside(void)
{
	static const char text[] = HEADER("6.0", "sm_50") ".visible .entry add(.param .u64 a)\n{ .reg .b64 %d1; .reg .u32 %r1;\n"
							  " ld.param.u64 %d1, [a]; mov.u32 %r1, 7; st.global.u32 [%d1+4096], %r1; ret; }\n";
	void *module, *function, *arguments[1];
	pointer memory;

	CALL(cuMemAlloc_v2, &memory, (size_t)4096);
	CALL(cuModuleLoadData, &module, text);
	CALL(cuModuleGetFunction, &function, module, "add");
	memory += 1ULL << 44; /* hardware maps more than what is allocated */
	arguments[0] = &memory;
	CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
	CALL(cuCtxSynchronize);
}

/* misuse does what the driver refuses, with a context or without one. */
static void misuse(const char *verb, int context)
{
	static char byte;
	void *module, *function;
	pointer memory = 0;

	if (!strcmp(verb, "copy"))
		CALL(cuMemcpyHtoD_v2, memory, &byte, (size_t)1);
	if (!context)
		return;
	if (!strcmp(verb, "unknown-instruction"))
		load(HEADER("6.0", "sm_50"), "nonsense.u32 %r1, 1; ret;");
	if (!strcmp(verb, "undeclared-register"))
		load(HEADER("6.0", "sm_50"), "mov.u32 %r9, 1; ret;");
	if (!strcmp(verb, "wrong-type"))
		load(HEADER("6.0", "sm_50"), "ld.param.u32 %r1, [a]; ret;");
	if (!strcmp(verb, "no-version"))
		load(".target sm_50\n.address_size 64\n", "ret;");
	if (!strcmp(verb, "newer-version"))
		load(HEADER("99.0", "sm_50"), "ret;");
	if (!strcmp(verb, "newer-target"))
		load(HEADER("6.0", "sm_999"), "ret;");
	if (!strcmp(verb, "no-function")) {
		CALL(cuModuleLoadData, &module, ptx);
		CALL(cuModuleGetFunction, &function, module, "add");
	}
	if (!strcmp(verb, "outside"))
		outside();
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
		misuse(arguments[i], 0);
		CALL(cuCtxCreate_v2, &context, 0, device);
		misuse(arguments[i], 1);
		if (!strcmp(arguments[i], "add")) {
			add();
			puts("added");
		}
		if (!strcmp(arguments[i], "fill"))
			fill();
		if (!strcmp(arguments[i], "memory"))
			memory();
		if (!strcmp(arguments[i], "share"))
			share(device);
		if (!strncmp(arguments[i], "allocate=", 9))
			allocate(strtoul(arguments[i] + 9, NULL, 10));
		if (!strncmp(arguments[i], "managed=", 8)) {
			pointer memory;

			CALL(cuMemAllocManaged, &memory, (size_t)strtoul(arguments[i] + 8, NULL, 10) << 20, 1 /* CU_MEM_ATTACH_GLOBAL */);
			puts("allocated");
		}
		if (!strncmp(arguments[i], "load=", 5))
			for (time_t end = time(NULL) + atoi(arguments[i] + 5); time(NULL) < end;)
				add();
		if (!strncmp(arguments[i], "keep=", 5)) {
			allocate(strtoul(arguments[i] + 5, NULL, 10));
			getchar();
			memory();
		}
		if (!strncmp(arguments[i], "export=", 7))
			export(strtoul(arguments[i] + 7, NULL, 10));
		if (!strncmp(arguments[i], "import=", 7))
			import(arguments[i] + 7);
		if (!strcmp(arguments[i], "hold")) {
			puts("holding");
			getchar();
		}
		CALL(cuCtxDestroy_v2, context);
	}
	return 0;
}
