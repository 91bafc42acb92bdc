/* What DCGM asks of the driver, by its NVML: bound when it is opened, as a container's library is there only then. */
#pragma once

enum { TEXT = 96 };

/* What one GPU says of itself; a measurement that it does not offer is negative. Memory in bytes, power in milliwatts, energy in millijoules. */
struct reading {
	char uuid[TEXT], name[TEXT];
	unsigned minor;
	double utilization, memory_utilization, used, free, temperature, power, energy, sm_clock, memory_clock;
};

/* nvml_begin opens the library and the driver, for as long as the process lives; it returns NVML's code, -1 without a library. */
int nvml_begin(void);
int nvml_count(void);
int nvml_read(unsigned index, struct reading *to);
void nvml_version(char *to);
