/*
 * Processes on a GPU: those that were injected. The locks show that a process holds a GPU, but not which. As with
 * the real driver, a caller sees only the processes of the same PID namespace: process IDs have no meaning in others.
 */
#include <sys/stat.h>

#include "session.h"

/* in_namespace reports whether the caller is in the PID namespace with the inode (pid_namespaces(7)). */
static bool in_namespace(uint32_t inode)
{
	struct stat own;

	return !stat("/proc/self/ns/pid", &own) && own.st_ino == inode;
}

static bool listed(const struct target *target, const struct process *process)
{
	return state_writable() && in_namespace(process->namespace) && (!target->mig || (process->instance == target->instance && process->compute == target->compute));
}

/* begin resolves the device and counts the processes; the caller's count becomes that. */
static nvmlReturn_t begin(const char *function, nvmlDevice_t device, unsigned *count, const void *list, struct target *target)
{
	unsigned room, found = 0;

	TRY(enter(function));
	REQUIRE(count && (list || !*count));
	TRY(device_target(device, target));
	room = *count;
	for (unsigned i = 0; i < target->state.process_count; i++)
		found += listed(target, &target->state.processes[i]);
	*count = found;
	return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *list)
{
	struct target target;

	TRY(begin(__func__, device, count, list, &target));
	for (unsigned i = 0; i < target.state.process_count; i++) {
		const struct process *p = &target.state.processes[i];
		if (listed(&target, p))
			*list++ = (nvmlProcessInfo_v1_t){.pid = p->pid, .usedGpuMemory = p->bytes};
	}
	return NVML_SUCCESS;
}

static nvmlReturn_t compute_list(const char *function, nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *list)
{
	struct target target;

	TRY(begin(function, device, count, list, &target));
	for (unsigned i = 0; i < target.state.process_count; i++) {
		const struct process *p = &target.state.processes[i];
		if (listed(&target, p))
			*list++ = (nvmlProcessInfo_v2_t){.pid = p->pid, .usedGpuMemory = p->bytes, .gpuInstanceId = p->instance,
							 .computeInstanceId = p->compute};
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *list)
{
	return compute_list(__func__, device, count, list);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list)
{
	return compute_list(__func__, device, count, list);
}

#define EMPTY_LIST(name, type)                                                  \
	nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *list) \
	{                                                                       \
		struct target target;                                           \
                                                                                \
		(void)list;                                                     \
		ENTER_DEVICE(&target, count);                                   \
		*count = 0;                                                     \
		return NVML_SUCCESS;                                            \
	}

EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)
