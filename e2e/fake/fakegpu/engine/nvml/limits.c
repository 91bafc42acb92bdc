/*
 * Limits of the memory that the processes of a cgroup can allocate (driver 615 and newer, backend dmem). One cgroup per GPU can have a limit. Nothing is
 * charged yet: a limit changes only what a reader in its cgroup sees.
 */
#include "limits.h"
#include "mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HIERARCHY "/sys/fs/cgroup"

/* inode_of returns the inode that stands for a cgroup; 0 if there is none at the path. */
static uint64_t inode_of(const char *path)
{
	struct stat info;

	return stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? info.st_ino : 0;
}

/* own_cgroup returns the cgroup of this process in the hierarchy of version 2, not one of those above it. */
static uint64_t own_cgroup(void)
{
	char line[4096], path[sizeof HIERARCHY + sizeof line];
	uint64_t inode = 0;
	FILE *file = fopen("/proc/self/cgroup", "re");

	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, "0::", 3))
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(path, sizeof path, HIERARCHY "%s", line + 3);
		inode = inode_of(path);
	}
	if (file)
		fclose(file);
	return inode;
}

unsigned long long visible_memory(const struct target *target, unsigned long long total)
{
	const struct gpu_state *state = &target->state;

	if (!state->limited_cgroup || state->hard_limit >= total || state->limited_cgroup != own_cgroup())
		return total;
	return state->hard_limit;
}

/* limits_supported reports whether the driver has limits, and the GPU: not with MIG. An older driver does not have the functions. */
static nvmlReturn_t limits_supported(const struct target *target)
{
	struct live_head head;

	live_head(&head);
	if (atoi(head.driver_version) < 615)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	return target->state.mig ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	struct target target;

	ENTER_GPU(&target, limits && limits->nameSpace);
	TRY(limits_supported(&target));
	uint64_t group = inode_of(limits->nameSpace);
	if (!group)
		return NVML_ERROR_OPERATING_SYSTEM;
	if (group != target.state.limited_cgroup)
		return NVML_ERROR_NOT_FOUND;
	limits->softLimit = target.state.soft_limit;
	limits->hardLimit = target.state.hard_limit;
	limits->currentUsed = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
	struct target target;

	ENTER_GPU(&target, limits && limits->nameSpace && limits->softLimit <= limits->hardLimit);
	TRY(limits_supported(&target));
	TRY(privileged());
	bool none = !limits->softLimit && limits->hardLimit == NVML_DEVICE_MEMORY_LIMIT_MAX;
	REQUIRE(none || limits->hardLimit <= (unsigned long long)target.model->memory_mib << 20);
	uint64_t group = inode_of(limits->nameSpace);
	if (!group)
		return NVML_ERROR_OPERATING_SYSTEM;
	struct live *live = state_begin();
	struct gpu_state *state = &live->gpus[target.gpu];
	state->limited_cgroup = none ? 0 : group;
	state->soft_limit = limits->softLimit;
	state->hard_limit = limits->hardLimit;
	state_commit();
	return NVML_SUCCESS;
}
