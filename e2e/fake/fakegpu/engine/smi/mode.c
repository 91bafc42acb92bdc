/* MIG as a command, and the modes of a GPU. */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void command_mig(struct arguments *arguments)
{
	struct gpus all = select_gpus(option(arguments, "-i", "--id")), gpus = {0};
	unsigned current, pending;

	for (unsigned i = 0; i < all.count; i++)
		if (nv.nvmlDeviceGetMigMode(all.list[i], &current, &pending) == NVML_SUCCESS)
			gpus.list[gpus.count++] = all.list[i];
	if (!gpus.count)
		fail(NVML_ERROR_NOT_SUPPORTED, "No MIG-supported devices found.\n");
	if (!mig_lists(arguments, gpus))
		mig_changes(arguments, gpus);
}

void command_mig_mode(struct gpus gpus, const char *mode)
{
	bool on = !strcmp(mode, "1") || !strcasecmp(mode, "ENABLED");
	const char *verb = on ? "Enable" : "Disable";

	for (unsigned i = 0; i < gpus.count; i++) {
		nvmlReturn_t activation, code = nv.nvmlDeviceSetMigMode(gpus.list[i], on, &activation);
		const char *bus = bus_id(gpus.list[i]);
		if (code != NVML_SUCCESS)
			fail(code, "Unable to %s MIG Mode for GPU %s: %s\n", on ? "enable" : "disable", bus, nv.nvmlErrorString(code));
		if (activation != NVML_SUCCESS)
			printf("Warning: MIG mode is in pending %s state for GPU %s:%s\n"
			       "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU %s\n",
			       on ? "enable" : "disable", bus, nv.nvmlErrorString(activation), bus);
		else
			printf("%sd MIG Mode for GPU %s\n", verb, bus);
	}
	puts("All done.");
}

/* The modes by their numbers; the second is obsolete and refused by the driver. */
static const char *const compute_modes[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};

static unsigned parse_compute_mode(const char *text)
{
	for (unsigned i = 0; i < 4; i++)
		if (!strcasecmp(text, compute_modes[i]) || (text[0] == (char)('0' + i) && !text[1]))
			return i;
	fail(NVML_ERROR_INVALID_ARGUMENT, "\"%s\" is not a valid compute mode: must be 0 (DEFAULT), 2 (PROHIBITED) or "
					  "3 (EXCLUSIVE_PROCESS).\n", text);
}

void command_compute_mode(struct gpus gpus, const char *text)
{
	unsigned mode = parse_compute_mode(text);

	for (unsigned i = 0; i < gpus.count; i++) {
		nvmlComputeMode_t current;
		nvmlReturn_t code = nv.nvmlDeviceGetComputeMode(gpus.list[i], &current);
		if (code == NVML_SUCCESS && current == mode) {
			printf("Compute mode is already set to %s for GPU %s.\n", compute_modes[mode], bus_id(gpus.list[i]));
			continue;
		}
		if (code == NVML_SUCCESS)
			code = nv.nvmlDeviceSetComputeMode(gpus.list[i], mode);
		if (code != NVML_SUCCESS)
			fail(code, "Unable to set the compute mode for GPU %s: %s\n", bus_id(gpus.list[i]), nv.nvmlErrorString(code));
		printf("Set compute mode to %s for GPU %s.\n", compute_modes[mode], bus_id(gpus.list[i]));
	}
	puts("All done.");
}

/* refuse ends the program as nvidia-smi does when it cannot reset a GPU. */
static void refuse(nvmlReturn_t code, const char *bus)
{
	if (code == NVML_ERROR_INVALID_STATE)
		fail(255, "GPU %s is linked by NVLink to GPUs that are not reset with it. GPUs that are connected must be reset together.\n", bus);
	printf("The following GPUs could not be reset:\n  GPU %s: %s\n\n", bus, nv.nvmlErrorString(code));
	if (code == NVML_ERROR_IN_USE)
		fail(255, "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics "
			  "application such as an X server, or a monitoring application such as another instance of nvidia-smi). Please "
			  "first kill all processes using this device and all compute applications running in the system.\n");
	exit(255);
}

void command_reset(struct gpus gpus)
{
	unsigned refused = 0;
	nvmlReturn_t code = nv.fakegpuReset(gpus.count, gpus.list, &refused);

	if (code != NVML_SUCCESS)
		refuse(code, bus_id(gpus.list[refused]));
	for (unsigned i = 0; i < gpus.count; i++)
		printf("GPU %s was successfully reset.\n", bus_id(gpus.list[i]));
	puts("All done.");
}

void command_persistence(struct gpus gpus, const char *text)
{
	bool on = !strcmp(text, "1") || !strcasecmp(text, "ENABLED");

	for (unsigned i = 0; i < gpus.count; i++) {
		nvmlReturn_t code = nv.nvmlDeviceSetPersistenceMode(gpus.list[i], on);
		if (code != NVML_SUCCESS)
			fail(code, "Unable to set persistence mode for GPU %s: %s\n", bus_id(gpus.list[i]), nv.nvmlErrorString(code));
		printf("%s persistence mode for GPU %s.\n", on ? "Enabled" : "Disabled", bus_id(gpus.list[i]));
	}
	puts("All done.");
}

static const char *const slices[] = {"DEFAULT", "SHORT", "MEDIUM", "LONG"};

static unsigned parse_slice(const char *text)
{
	for (unsigned i = 0; i < 4; i++)
		if (!strcasecmp(text, slices[i]) || (text[0] == (char)('0' + i) && !text[1]))
			return i;
	fail(NVML_ERROR_INVALID_ARGUMENT, "\"%s\" is not a valid time slice: must be 0 to 3.\n", text);
}

static void list_policies(struct gpus gpus)
{
	static const char *const shown[] = {"Default", "Short", "Medium", "Long"};

	puts("+-------------------------------------+\n| GPU compute policies:               |\n"
	     "| GPU     Name           Value        |\n|=====================================|");
	for (unsigned i = 0; i < gpus.count; i++) {
		unsigned slice;
		check(nv.fakegpuGetTimeSlice(gpus.list[i], &slice), "Failed to get the time slice");
		printf("| %3u   %-15s %-13s |\n", index_of(gpus.list[i]), "Timeslice", shown[slice]);
	}
	puts("+-------------------------------------+");
}

void command_policy(struct arguments *arguments)
{
	struct gpus gpus = select_gpus(option(arguments, "-i", "--id"));
	const char *text = option(arguments, "", "--set-timeslice");
	unsigned slice = text ? parse_slice(text) : 0;
	bool list = flag(arguments, "-l", "--list");

	none_left(arguments);
	for (unsigned i = 0; text && i < gpus.count; i++) {
		nvmlReturn_t code = nv.fakegpuSetTimeSlice(gpus.list[i], slice);
		if (code != NVML_SUCCESS)
			fail(code, "Failed to set timeslice for GPU %s: %s\n", bus_id(gpus.list[i]), nv.nvmlErrorString(code));
		printf("Successfully set timeslice policy for GPU %s to %s\n", bus_id(gpus.list[i]), slices[slice]);
	}
	if (list)
		list_policies(gpus);
	else if (!text)
		fail(NVML_ERROR_INVALID_ARGUMENT, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
}
