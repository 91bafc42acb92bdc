/* The part of NVML that DCGM uses, bound when the driver is opened: only then does a container have the library. */
#pragma once

enum { TEXT = 96 };

/* The readings of one GPU; a measurement that it does not offer is negative. Memory in bytes, power in milliwatts, energy in millijoules. */
struct reading {
	char uuid[TEXT], name[TEXT];
	unsigned minor;
	double utilization, memory_utilization, used, free, temperature, power, energy, sm_clock, memory_clock;
};

/* nvml_begin opens the library and the driver, for the lifetime of the process; it returns NVML's code, -1 without a library. */
int nvml_begin(void);
int nvml_count(void);
int nvml_read(unsigned index, struct reading *to);
void nvml_version(char *to);
