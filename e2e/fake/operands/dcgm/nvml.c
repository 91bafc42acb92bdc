#include "nvml.h"

#include <dlfcn.h>
#include <stddef.h>

typedef void *device;

static struct {
	int (*init)(void);
	int (*count)(unsigned *);
	int (*handle)(unsigned, device *);
	int (*driver)(char *, unsigned);
	int (*uuid)(device, char *, unsigned);
	int (*name)(device, char *, unsigned);
	int (*minor)(device, unsigned *);
	int (*utilization)(device, unsigned *);
	int (*memory)(device, unsigned long long *);
	int (*temperature)(device, int, unsigned *);
	int (*power)(device, unsigned *);
	int (*energy)(device, unsigned long long *);
	int (*clock)(device, int, unsigned *);
} nvml;

int nvml_begin(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	const struct {
		void *to;
		const char *name;
	} functions[] = {
		{&nvml.init, "nvmlInit_v2"}, {&nvml.count, "nvmlDeviceGetCount_v2"}, {&nvml.handle, "nvmlDeviceGetHandleByIndex_v2"},
		{&nvml.driver, "nvmlSystemGetDriverVersion"}, {&nvml.uuid, "nvmlDeviceGetUUID"}, {&nvml.name, "nvmlDeviceGetName"},
		{&nvml.minor, "nvmlDeviceGetMinorNumber"}, {&nvml.utilization, "nvmlDeviceGetUtilizationRates"},
		{&nvml.memory, "nvmlDeviceGetMemoryInfo"}, {&nvml.temperature, "nvmlDeviceGetTemperature"},
		{&nvml.power, "nvmlDeviceGetPowerUsage"}, {&nvml.energy, "nvmlDeviceGetTotalEnergyConsumption"}, {&nvml.clock, "nvmlDeviceGetClockInfo"},
	};

	if (!library)
		return -1;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!(*(void **)functions[i].to = dlsym(library, functions[i].name)))
			return -1;
	return nvml.init();
}

int nvml_count(void)
{
	unsigned count = 0;

	return nvml.count(&count) ? -1 : (int)count;
}

void nvml_version(char *to) { nvml.driver(to, TEXT); }

static double number(int code, double value) { return code ? -1 : value; }

int nvml_read(unsigned index, struct reading *r)
{
	enum { SM = 1, MEMORY = 2 }; /* nvmlClockType_t */
	unsigned rates[2], value;    /* nvmlUtilization_t */
	unsigned long long memory[3], energy; /* nvmlMemory_t: total, free, used */
	device d;
	int code;

	if ((code = nvml.handle(index, &d)) || (code = nvml.uuid(d, r->uuid, TEXT)) || (code = nvml.name(d, r->name, TEXT)) ||
	    (code = nvml.minor(d, &r->minor)))
		return code;
	code = nvml.utilization(d, rates);
	r->utilization = number(code, rates[0]);
	r->memory_utilization = number(code, rates[1]);
	code = nvml.memory(d, memory);
	r->free = number(code, (double)memory[1]);
	r->used = number(code, (double)memory[2]);
	code = nvml.temperature(d, 0, &value);
	r->temperature = number(code, value);
	code = nvml.power(d, &value);
	r->power = number(code, value);
	code = nvml.energy(d, &energy);
	r->energy = number(code, (double)energy);
	code = nvml.clock(d, SM, &value);
	r->sm_clock = number(code, value);
	code = nvml.clock(d, MEMORY, &value);
	r->memory_clock = number(code, value);
	return 0;
}
