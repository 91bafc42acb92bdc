/* Creating and destroying instances. */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A comma-separated list of ids; empty means all. */
static bool listed(const char *ids, unsigned id)
{
	if (!ids || !*ids)
		return true;
	for (const char *at = ids; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strtoul(at, NULL, 10) == id)
			return true;
	}
	return false;
}

/* split cuts "19:6" into its profile and start; false when there is no start. */
static bool split(char *text, unsigned *start)
{
	char *colon = strchr(text, ':');

	if (!colon)
		return false;
	*colon = 0;
	*start = strtoul(colon + 1, NULL, 10);
	return true;
}

/* find_profile looks a profile up by id, by 1g.10gb, or by "MIG 1g.10gb". */
static const struct profile *find_profile(nvmlDevice_t device, const char *wanted)
{
	static struct profile list[MOST_PROFILES];
	unsigned count = profiles(device, list, MOST_PROFILES);
	char *end;
	unsigned long id = strtoul(wanted, &end, 10);

	for (unsigned i = 0; i < count; i++)
		if (*end ? !strcmp(list[i].info.name, wanted) || !strcmp(list[i].info.name + strlen("MIG "), wanted) : list[i].info.id == id)
			return &list[i];
	fail(NVML_ERROR_INVALID_ARGUMENT, "Unable to create a GPU instance on GPU %2u using profile %s: Invalid Argument\n"
					  "Failed to create GPU instances: Invalid Argument\n", index_of(device), wanted);
}

/* The constants of compute profiles whose ids are given by number or as the default, the whole. */
static nvmlReturn_t create_compute(unsigned gpu, nvmlGpuInstance_t instance, const char *wanted)
{
	nvmlComputeInstanceProfileInfo_v2_t p, chosen = {0};
	nvmlGpuInstanceInfo_t parent;
	nvmlComputeInstance_t created;
	nvmlComputeInstanceInfo_t info;

	for (unsigned constant = 0; constant < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; constant++) {
		p.version = nvmlComputeInstanceProfileInfo_v2;
		if (nv.nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance, constant, 0, &p) != NVML_SUCCESS)
			continue;
		bool wins = wanted ? strtoul(wanted, NULL, 10) == p.id : p.multiprocessorCount > chosen.multiprocessorCount;
		if (wins)
			chosen = p;
	}
	check(nv.nvmlGpuInstanceGetInfo(instance, &parent), "Failed to get the GPU instance");
	nvmlReturn_t code = chosen.sliceCount ? nv.nvmlGpuInstanceCreateComputeInstance(instance, chosen.id, &created) : NVML_ERROR_NOT_SUPPORTED;
	if (code != NVML_SUCCESS) {
		printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile %s: %s\n", gpu, parent.id,
		       wanted ? wanted : chosen.name, nv.nvmlErrorString(code));
		return code;
	}
	check(nv.nvmlComputeInstanceGetInfo_v2(created, &info), "Failed to get the compute instance");
	printf("Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using profile %s (ID %2u)\n", info.id, gpu,
	       parent.id, chosen.name, chosen.id);
	return NVML_SUCCESS;
}

static void create_instance(nvmlDevice_t device, char *wanted, bool with_compute)
{
	unsigned start = 0, gpu = index_of(device);
	bool placed = split(wanted, &start);
	const struct profile *profile = find_profile(device, wanted);
	nvmlGpuInstancePlacement_t placement = {start, profile->placements[0].size};
	nvmlGpuInstance_t created;
	nvmlGpuInstanceInfo_t info;

	nvmlReturn_t code = placed ? nv.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile->info.id, &placement, &created)
				   : nv.nvmlDeviceCreateGpuInstance(device, profile->info.id, &created);
	if (code != NVML_SUCCESS)
		fail(code, "Unable to create a GPU instance on GPU %2u using profile %u: %s\nFailed to create GPU instances: %s\n", gpu,
		     profile->info.id, nv.nvmlErrorString(code), nv.nvmlErrorString(code));
	check(nv.nvmlGpuInstanceGetInfo(created, &info), "Failed to get the GPU instance");
	printf("Successfully created GPU instance ID %2u on GPU %2u using profile %s (ID %2u)\n", info.id, gpu, profile->info.name,
	       profile->info.id);
	if (with_compute)
		check(create_compute(gpu, created, NULL), "Failed to create compute instances");
}

static void create_instances(struct gpus gpus, const char *wanted, bool with_compute)
{
	for (unsigned g = 0; g < gpus.count; g++) {
		char *copy = strdup(wanted), *rest = copy, *one;
		while ((one = strsep(&rest, ",")))
			create_instance(gpus.list[g], one, with_compute);
		free(copy);
	}
}

static void create_computes(struct gpus gpus, const char *wanted, const char *instances)
{
	nvmlGpuInstance_t handle;
	unsigned found = 0;

	for (unsigned g = 0; g < gpus.count; g++)
		for (unsigned id = 0; id < MOST_INSTANCES; id++) {
			if (nv.nvmlDeviceGetGpuInstanceById(gpus.list[g], id, &handle) != NVML_SUCCESS || !listed(instances, id))
				continue;
			found++;
			char *copy = strdup(wanted), *rest = copy, *one;
			while ((one = strsep(&rest, ",")))
				check(create_compute(index_of(gpus.list[g]), handle, *one ? one : NULL), "Failed to create compute instances");
			free(copy);
		}
	if (!found)
		fail(NVML_ERROR_NOT_FOUND, "No GPU instances found: Not Found\n");
}

static unsigned destroy_computes_of(unsigned gpu, nvmlGpuInstance_t instance, unsigned id, const char *computes)
{
	nvmlComputeInstance_t handle;
	unsigned destroyed = 0;

	for (unsigned c = 0; c < MOST_COMPUTES; c++) {
		if (nv.nvmlGpuInstanceGetComputeInstanceById(instance, c, &handle) != NVML_SUCCESS || !listed(computes, c))
			continue;
		nvmlReturn_t code = nv.nvmlComputeInstanceDestroy(handle);
		if (code != NVML_SUCCESS)
			fail(code, "Unable to destroy compute instance ID %2u from GPU %2u GPU instance ID %2u: %s\n"
				   "Failed to destroy compute instances: %s\n", c, gpu, id, nv.nvmlErrorString(code), nv.nvmlErrorString(code));
		printf("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance ID %2u\n", c, gpu, id);
		destroyed++;
	}
	return destroyed;
}

static void destroy_computes(struct gpus gpus, const char *instances, const char *computes)
{
	nvmlGpuInstance_t handle;
	unsigned destroyed = 0;

	for (unsigned g = 0; g < gpus.count; g++)
		for (unsigned id = 0; id < MOST_INSTANCES; id++)
			if (listed(instances, id) && nv.nvmlDeviceGetGpuInstanceById(gpus.list[g], id, &handle) == NVML_SUCCESS)
				destroyed += destroy_computes_of(index_of(gpus.list[g]), handle, id, computes);
	if (!destroyed)
		fail(NVML_ERROR_NOT_FOUND, "No compute instances found: Not Found\n");
}

static void destroy_instances(struct gpus gpus, const char *instances)
{
	nvmlGpuInstance_t handle;
	unsigned destroyed = 0;

	for (unsigned g = 0; g < gpus.count; g++)
		for (unsigned id = 0; id < MOST_INSTANCES; id++) {
			if (!listed(instances, id) || nv.nvmlDeviceGetGpuInstanceById(gpus.list[g], id, &handle) != NVML_SUCCESS)
				continue;
			nvmlReturn_t code = nv.nvmlGpuInstanceDestroy(handle);
			if (code != NVML_SUCCESS)
				fail(code, "Unable to destroy GPU instance ID %2u from GPU %2u: %s\nFailed to destroy GPU instances: %s\n", id,
				     index_of(gpus.list[g]), nv.nvmlErrorString(code), nv.nvmlErrorString(code));
			printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", id, index_of(gpus.list[g]));
			destroyed++;
		}
	if (!destroyed)
		fail(NVML_ERROR_NOT_FOUND, "No GPU instances found: Not Found\n");
}

void mig_changes(struct arguments *arguments, struct gpus gpus)
{
	const char *create = option(arguments, "-cgi", "--create-gpu-instance");
	bool with_compute = flag(arguments, "-C", "--default-compute-instance");
	const char *compute = optional(arguments, "-cci", "--create-compute-instance");
	bool destroy = flag(arguments, "-dgi", "--destroy-gpu-instance");
	bool destroy_compute = flag(arguments, "-dci", "--destroy-compute-instance");
	const char *instances = option(arguments, "-gi", "--gpu-instance-id");
	const char *computes = option(arguments, "-ci", "--compute-instance-id");

	none_left(arguments);
	if (create)
		create_instances(gpus, create, with_compute);
	else if (compute)
		create_computes(gpus, compute, instances);
	else if (destroy_compute)
		destroy_computes(gpus, instances, computes);
	else if (destroy)
		destroy_instances(gpus, instances);
	else
		fail(NVML_ERROR_INVALID_ARGUMENT, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
}
