/* nvmlDeviceSetMemoryLimits_v1 and nvmlDeviceGetMemoryLimits_v1 (driver 615 and newer). */
#include "limits.h"
#include "mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "charge.h"

unsigned long long visible_memory(const struct target *target, unsigned long long total, unsigned long long *charged)
{
	return memory_seen(target->gpu, total, charged);
}

/* enter_limits checks that the driver has limits, and the GPU: not with MIG. An older driver does not have the functions. */
static nvmlReturn_t enter_limits(const struct target *target, const char *folder, enum backend *backend, struct group *group)
{
	static struct memory_limit limits[MAX_LIMITS];
	struct live_head head;

	live_head(&head);
	if (atoi(head.driver_version) < 615)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	*backend = live_limits(limits);
	if (*backend == BACKEND_NONE || target->state.mig)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!group_at(folder, group))
		return NVML_ERROR_OPERATING_SYSTEM;
	/* The root of the hierarchy has no files of controllers. */
	return group_has(folder, "cgroup.type") ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	struct memory_limit all[MAX_LIMITS];
	struct target target;
	enum backend backend;
	struct group group;

	ENTER_GPU(&target, limits && limits->nameSpace);
	TRY(enter_limits(&target, limits->nameSpace, &backend, &group));
	live_limits(all);
	int found = limit_of(all, target.gpu, &group);
	/* NVML reads "no limit" from the files of dmem; with misc, that is an entry like any other, and without one the driver refuses. */
	if (found < 0 && backend == BACKEND_MISC)
		return NVML_ERROR_NOT_SUPPORTED;
	if (found < 0 || (backend == BACKEND_DMEM && !all[found].soft && all[found].hard == NVML_DEVICE_MEMORY_LIMIT_MAX))
		return NVML_ERROR_NOT_FOUND;
	limits->softLimit = all[found].soft;
	limits->hardLimit = all[found].hard;
	limits->currentUsed = all[found].binds ? memory_charged(found) : 0;
	return NVML_SUCCESS;
}

/* write_dmem writes what NVML writes to the files of the group: the region of the GPU and a value. */
static bool write_dmem(const char *folder, const struct target *target, const char *name, unsigned long long bytes)
{
	char path[512], value[32] = "max";

	snprintf(path, sizeof path, "%s/%s", folder, name);
	if (bytes != NVML_DEVICE_MEMORY_LIMIT_MAX)
		snprintf(value, sizeof value, "%llu", bytes);
	FILE *file = fopen(path, "we");
	if (!file)
		return false;
	fprintf(file, "nvidia/%08X:%02X:%02X.0/vidmem %s\n", target->part->domain, target->part->bus, target->part->device, value);
	return fclose(file) == 0;
}

/* entry returns the position of the group's entry, or a free one: that of a group that was removed is the last resort. */
static int entry(struct live *live, unsigned gpu, const struct group *group)
{
	int found = limit_of(live->limits, gpu, group);

	for (int i = 0; i < MAX_LIMITS && found < 0; i++)
		if (!live->limits[i].used)
			found = i;
	for (int i = 0; i < MAX_LIMITS && found < 0; i++) {
		struct stat info;
		if (stat(live->limits[i].path, &info) && !memory_charged(i))
			found = i;
	}
	return found;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
	struct target target;
	enum backend backend;
	struct group group;

	ENTER_GPU(&target, limits && limits->nameSpace && limits->softLimit <= limits->hardLimit);
	TRY(enter_limits(&target, limits->nameSpace, &backend, &group));
	TRY(privileged());
	REQUIRE(limits->hardLimit == NVML_DEVICE_MEMORY_LIMIT_MAX || limits->hardLimit <= (unsigned long long)target.model->memory_mib << 20);
	bool binds = group_controls(limits->nameSpace, backend);
	if (!binds && backend == BACKEND_DMEM)
		return NVML_ERROR_NOT_FOUND;
	struct live *live = state_begin();
	int at = entry(live, target.gpu, &group);
	nvmlReturn_t result = at < 0 ? NVML_ERROR_MEMORY : NVML_SUCCESS;
	bool below = at >= 0 && live->limits[at].used && limits->hardLimit < memory_charged(at);
	below = below || live->ignores_limits;
	/* A limit below what is allocated: misc refuses it, and with dmem the write succeeds and changes nothing. */
	if (below && backend == BACKEND_MISC)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS && backend == BACKEND_DMEM && !below &&
	    !(write_dmem(limits->nameSpace, &target, "dmem.max", limits->hardLimit) && write_dmem(limits->nameSpace, &target, "dmem.min", limits->softLimit)))
		result = NVML_ERROR_UNKNOWN;
	if (result != NVML_SUCCESS || below) {
		state_abort();
		return result;
	}
	struct memory_limit *limit = &live->limits[at];
	*limit = (struct memory_limit){.used = 1, .binds = binds, .gpu = target.gpu, .device = group.device, .inode = group.inode,
				       .soft = limits->softLimit, .hard = limits->hardLimit};
	snprintf(limit->path, sizeof limit->path, "%s", limits->nameSpace);
	state_commit();
	return NVML_SUCCESS;
}
