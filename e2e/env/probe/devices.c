// What NVML shows, in one line:
//   {"gpus":[{"uuid":"GPU-…","name":"…","memoryMiB":81559,"mig":false,"instances":[]}],"cuda":1}
// A GPU in MIG mode is listed with the MIG devices that are visible; the GPU itself is not given then.
// "cuda" is what libcuda counts, or -1 with the reason on stderr.
#include "probe.h"

#include <stdio.h>

typedef void *device;
typedef struct {
	unsigned long long total, free, used;
} memory;

// The start of nvmlDeviceAttributes_t; the library fills exactly these nine fields.
typedef struct {
	unsigned multiprocessors, copyEngines, decoders, encoders, jpegEngines, ofaEngines, gpuSlices, computeSlices;
	unsigned long long memoryMiB;
} attributes;

static struct {
	int (*init)(void);
	int (*count)(unsigned *);
	int (*byIndex)(unsigned, device *);
	int (*uuid)(device, char *, unsigned);
	int (*name)(device, char *, unsigned);
	int (*memory)(device, memory *);
	int (*migMode)(device, unsigned *, unsigned *);
	int (*migCount)(device, unsigned *);
	int (*migByIndex)(device, unsigned, device *);
	int (*attributes)(device, attributes *);
	int (*gpuInstance)(device, unsigned *);
	int (*computeInstance)(device, unsigned *);
} nvml;

// bind looks every function up; 0 on success.
static int bind(void) {
	void *l = library("libnvidia-ml.so.1");
	if (l == NULL)
		return -1;
	return (nvml.init = symbol(l, "nvmlInit_v2")) == NULL ||
	       (nvml.count = symbol(l, "nvmlDeviceGetCount_v2")) == NULL ||
	       (nvml.byIndex = symbol(l, "nvmlDeviceGetHandleByIndex_v2")) == NULL ||
	       (nvml.uuid = symbol(l, "nvmlDeviceGetUUID")) == NULL ||
	       (nvml.name = symbol(l, "nvmlDeviceGetName")) == NULL ||
	       (nvml.memory = symbol(l, "nvmlDeviceGetMemoryInfo")) == NULL ||
	       (nvml.migMode = symbol(l, "nvmlDeviceGetMigMode")) == NULL ||
	       (nvml.migCount = symbol(l, "nvmlDeviceGetMaxMigDeviceCount")) == NULL ||
	       (nvml.migByIndex = symbol(l, "nvmlDeviceGetMigDeviceHandleByIndex")) == NULL ||
	       (nvml.attributes = symbol(l, "nvmlDeviceGetAttributes_v2")) == NULL ||
	       (nvml.gpuInstance = symbol(l, "nvmlDeviceGetGpuInstanceId")) == NULL ||
	       (nvml.computeInstance = symbol(l, "nvmlDeviceGetComputeInstanceId")) == NULL;
}

// identity prints the fields that a GPU and a MIG device have in common.
static void identity(device d) {
	char uuid[96] = "", name[96] = "";
	nvml.uuid(d, uuid, sizeof uuid);
	nvml.name(d, name, sizeof name);
	printf("\"uuid\":");
	text(uuid);
	printf(",\"name\":");
	text(name);
}

static void instance(device d) {
	attributes a = {0};
	unsigned gi = 0, ci = 0;
	nvml.attributes(d, &a);
	nvml.gpuInstance(d, &gi);
	nvml.computeInstance(d, &ci);
	putchar('{');
	identity(d);
	printf(",\"memoryMiB\":%llu,\"multiprocessors\":%u,\"gpuInstance\":%u,\"computeInstance\":%u}", a.memoryMiB,
	       a.multiprocessors, gi, ci);
}

static void instances(device parent) {
	unsigned most = 0, shown = 0;
	nvml.migCount(parent, &most);
	for (unsigned i = 0; i < most; i++) {
		device d;
		if (nvml.migByIndex(parent, i, &d) != 0)
			continue;
		if (shown++ > 0)
			putchar(',');
		instance(d);
	}
}

static void gpu(device d) {
	memory m = {0};
	unsigned mode = 0, pending = 0;
	nvml.memory(d, &m);
	int mig = nvml.migMode(d, &mode, &pending) == 0 && mode == 1;
	putchar('{');
	identity(d);
	printf(",\"memoryMiB\":%llu,\"mig\":%s,\"instances\":[", m.total >> 20, mig ? "true" : "false");
	if (mig)
		instances(d);
	printf("]}");
}

static int cuda(void) {
	int (*init)(unsigned), (*count)(int *), n = 0;
	void *l = library("libcuda.so.1");
	if (l == NULL || (init = symbol(l, "cuInit")) == NULL || (count = symbol(l, "cuDeviceGetCount")) == NULL)
		return -1;
	int status = init(0);
	if (status == 0)
		status = count(&n);
	if (status != 0) {
		fprintf(stderr, "count CUDA devices: error %d\n", status);
		return -1;
	}
	return n;
}

int devices(void) {
	unsigned n = 0;
	if (bind() != 0)
		return 1;
	int status = nvml.init();
	if (status == 0)
		status = nvml.count(&n);
	if (status != 0) {
		fprintf(stderr, "count GPUs: NVML error %d\n", status);
		return 1;
	}
	printf("{\"gpus\":[");
	for (unsigned i = 0; i < n; i++) {
		device d;
		status = nvml.byIndex(i, &d);
		if (status != 0) {
			fprintf(stderr, "open GPU %u: NVML error %d\n", i, status);
			return 1;
		}
		if (i > 0)
			putchar(',');
		gpu(d);
	}
	printf("],\"cuda\":%d}\n", cuda());
	return 0;
}
