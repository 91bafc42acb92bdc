#include "smi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nv nv;

void fail(nvmlReturn_t code, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vprintf(format, values);
	va_end(values);
	exit(code);
}

void check(nvmlReturn_t code, const char *what)
{
	if (code != NVML_SUCCESS)
		fail(code, "%s: %s\n", what, nv.nvmlErrorString(code));
}

void load(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

	if (!library)
		fail(NVML_ERROR_LIBRARY_NOT_FOUND, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n");
#define FIND(name)                                                                                \
	nv.name = (typeof(nv.name))dlsym(library, #name);                                         \
	if (!nv.name)                                                                             \
		fail(NVML_ERROR_FUNCTION_NOT_FOUND, "libnvidia-ml.so.1 has no function %s\n", #name);
	FUNCTIONS(FIND)
	nvmlReturn_t code = nv.nvmlInit_v2();
	if (code == NVML_ERROR_DRIVER_NOT_LOADED)
		fail(code, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
			   "Make sure that the latest NVIDIA driver is installed and running.\n");
	check(code, "Failed to initialize NVML");
}

/* take removes an argument and the ones after it. */
static void take(struct arguments *arguments, int at, int count)
{
	arguments->count -= count;
	memmove(&arguments->list[at], &arguments->list[at + count], (arguments->count - at) * sizeof *arguments->list);
}

static int find(struct arguments *arguments, const char *brief, const char *verbose)
{
	for (int i = 0; i < arguments->count; i++)
		if (!strcmp(arguments->list[i], brief) || !strcmp(arguments->list[i], verbose))
			return i;
	return -1;
}

bool flag(struct arguments *arguments, const char *brief, const char *verbose)
{
	int at = find(arguments, brief, verbose);

	if (at >= 0)
		take(arguments, at, 1);
	return at >= 0;
}

/* joined finds --long=value. */
static const char *joined(struct arguments *arguments, const char *verbose)
{
	size_t length = strlen(verbose);

	for (int i = 0; i < arguments->count; i++)
		if (!strncmp(arguments->list[i], verbose, length) && arguments->list[i][length] == '=') {
			const char *value = arguments->list[i] + length + 1;
			take(arguments, i, 1);
			return value;
		}
	return NULL;
}

const char *optional(struct arguments *arguments, const char *brief, const char *verbose)
{
	const char *value = joined(arguments, verbose);
	int at = find(arguments, brief, verbose);

	if (value || at < 0)
		return value;
	bool given = at + 1 < arguments->count && arguments->list[at + 1][0] != '-';
	value = given ? arguments->list[at + 1] : "";
	take(arguments, at, given ? 2 : 1);
	return value;
}

const char *option(struct arguments *arguments, const char *brief, const char *verbose)
{
	const char *value = optional(arguments, brief, verbose);

	if (value && !*value)
		fail(NVML_ERROR_INVALID_ARGUMENT, "Option \"%s\" requires a value. Please run 'nvidia-smi -h' for help.\n", verbose);
	return value;
}

void none_left(struct arguments *arguments)
{
	if (arguments->count)
		fail(NVML_ERROR_INVALID_ARGUMENT, "Invalid combination of input arguments: \"%s\". "
						  "Please run 'nvidia-smi -h' for help.\n", arguments->list[0]);
}

static nvmlDevice_t find_gpu(const char *name)
{
	nvmlDevice_t device;
	char *end;
	unsigned long index = strtoul(name, &end, 10);
	nvmlReturn_t code;

	if (!*end)
		code = nv.nvmlDeviceGetHandleByIndex_v2(index, &device);
	else if (!strncmp(name, "GPU-", 4) || !strncmp(name, "MIG-", 4))
		code = nv.nvmlDeviceGetHandleByUUID(name, &device);
	else
		code = nv.nvmlDeviceGetHandleByPciBusId_v2(name, &device);
	if (code == NVML_ERROR_GPU_IS_LOST)
		fail(code, "Unable to determine the device handle for GPU%s: GPU is lost.  Reboot the system to recover this GPU\n", name);
	if (code != NVML_SUCCESS)
		fail(NVML_ERROR_NOT_FOUND, "No devices were found\n");
	return device;
}

struct gpus select_gpus(const char *names)
{
	struct gpus gpus = {0};

	if (!names) {
		check(nv.nvmlDeviceGetCount_v2(&gpus.count), "Failed to count the GPUs");
		for (unsigned i = 0; i < gpus.count; i++)
			if (nv.nvmlDeviceGetHandleByIndex_v2(i, &gpus.list[i]) != NVML_SUCCESS)
				fail(NVML_ERROR_GPU_IS_LOST, "Unable to determine the device handle for GPU %u: GPU is lost\n", i);
		return gpus;
	}
	char *copy = strdup(names), *rest = copy, *name;
	while ((name = strsep(&rest, ",")) && gpus.count < 64)
		gpus.list[gpus.count++] = find_gpu(name);
	free(copy);
	return gpus;
}

unsigned index_of(nvmlDevice_t device)
{
	unsigned index = 0;

	check(nv.nvmlDeviceGetIndex(device, &index), "Failed to get the index");
	return index;
}

const char *bus_id(nvmlDevice_t device)
{
	static nvmlPciInfo_t pci;

	check(nv.nvmlDeviceGetPciInfo_v3(device, &pci), "Failed to get the bus id");
	return pci.busId;
}
