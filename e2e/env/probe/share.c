// What of each CUDA device this process may use, in one line:
//   {"devices":[{"uuid":"GPU-…","totalMiB":81559,"freeMiB":4096,"multiprocessors":32}],"allocatedMiB":4096,"refused":2}
// Free memory and multiprocessors are what is left of the device under MPS limits. On the first device
// as much is allocated as it says is free, or the number of MiB that is asked for; "refused" is the CUDA
// error of allocating one MiB more, 0 when that succeeds. The memory is kept until the process ends.
// When a call fails the line is {"failed":"cuInit","error":805} instead, and the exit status 1.
//
// With a number of seconds to watch, the context is asked ten times a second whether it still works. A
// second line tells of the first call that failed, or after the time {"failed":"","error":0}.
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { multiprocessors = 16 /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */, most = 64 };

typedef unsigned long long pointer;

static struct {
	int (*init)(unsigned);
	int (*count)(int *);
	int (*get)(int *, int);
	int (*uuid)(unsigned char *, int);
	int (*parent)(unsigned char *, int);
	int (*attribute)(int *, int, int);
	int (*create)(void **, unsigned, int);
	int (*info)(size_t *, size_t *);
	int (*alloc)(pointer *, size_t);
	int (*synchronize)(void);
} cuda;

static struct {
	unsigned char uuid[16], parent[16];
	size_t free, total;
	int multiprocessors;
} device[most];

static int bind(void) {
	void *l = library("libcuda.so.1");
	if (l == NULL)
		return -1;
	return (cuda.init = symbol(l, "cuInit")) == NULL ||
	       (cuda.count = symbol(l, "cuDeviceGetCount")) == NULL ||
	       (cuda.get = symbol(l, "cuDeviceGet")) == NULL ||
	       (cuda.uuid = symbol(l, "cuDeviceGetUuid_v2")) == NULL ||
	       (cuda.parent = symbol(l, "cuDeviceGetUuid")) == NULL ||
	       (cuda.attribute = symbol(l, "cuDeviceGetAttribute")) == NULL ||
	       (cuda.create = symbol(l, "cuCtxCreate_v2")) == NULL ||
	       (cuda.info = symbol(l, "cuMemGetInfo_v2")) == NULL ||
	       (cuda.alloc = symbol(l, "cuMemAlloc_v2")) == NULL ||
	       (cuda.synchronize = symbol(l, "cuCtxSynchronize")) == NULL;
}

// failed tells which call failed, and ends the line.
static int failed(const char *call, int error) {
	if (error != 0)
		printf("{\"failed\":\"%s\",\"error\":%d}\n", call, error);
	return error;
}

// look makes a context on every device, the first one last: it is the one that stays current.
static int look(int *n) {
	void *context;
	int d;
	if (failed("cuInit", cuda.init(0)) != 0 || failed("cuDeviceGetCount", cuda.count(n)) != 0)
		return -1;
	*n = *n < most ? *n : most;
	for (int i = *n; i-- > 0;)
		if (failed("cuDeviceGet", cuda.get(&d, i)) != 0 || failed("cuDeviceGetUuid", cuda.uuid(device[i].uuid, d)) != 0 ||
		    failed("cuDeviceGetUuid", cuda.parent(device[i].parent, d)) != 0 ||
		    failed("cuDeviceGetAttribute", cuda.attribute(&device[i].multiprocessors, multiprocessors, d)) != 0 ||
		    failed("cuCtxCreate", cuda.create(&context, 0, d)) != 0 ||
		    failed("cuMemGetInfo", cuda.info(&device[i].free, &device[i].total)) != 0)
			return -1;
	return 0;
}

static void print(int n) {
	printf("{\"devices\":[");
	for (int i = 0; i < n; i++) {
		const unsigned char *b = device[i].uuid;
		int mig = memcmp(b, device[i].parent, 16) != 0;
		printf("%s{\"uuid\":\"%s-", i > 0 ? "," : "", mig ? "MIG" : "GPU");
		for (int k = 0; k < 16; k++)
			printf("%s%02x", k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "", b[k]);
		printf("\",\"totalMiB\":%zu,\"freeMiB\":%zu,\"multiprocessors\":%d}", device[i].total >> 20, device[i].free >> 20,
		       device[i].multiprocessors);
	}
}

// watch asks whether the context still works, so many seconds long.
static int watch(long seconds) {
	const struct timespec pause = {.tv_nsec = 100000000};
	for (long i = 0; i < 10 * seconds; i++) {
		if (failed("cuCtxSynchronize", cuda.synchronize()) != 0)
			return 1;
		nanosleep(&pause, NULL);
	}
	puts("{\"failed\":\"\",\"error\":0}");
	return 0;
}

int share(int argc, char **argv) {
	pointer memory;
	int n = 0;
	if (argc > 2) {
		fprintf(stderr, "usage: probe share [MIB|all [SECONDS]]\n");
		return 2;
	}
	if (bind() != 0 || look(&n) != 0)
		return 1;
	size_t wanted = device[0].free >> 20;
	if (argc > 0 && strcmp(argv[0], "all") != 0)
		wanted = strtoul(argv[0], NULL, 10);
	if (wanted > 0 && failed("cuMemAlloc", cuda.alloc(&memory, wanted << 20)) != 0)
		return 1;
	print(n);
	printf("],\"allocatedMiB\":%zu,\"refused\":%d}\n", wanted, cuda.alloc(&memory, 1 << 20));
	fflush(stdout);
	return argc > 1 ? watch(strtol(argv[1], NULL, 10)) : 0;
}
