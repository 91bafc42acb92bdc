/*
 * Limits of the memory that the processes of a control group allocate on a GPU, and what they have allocated. Source: the memory accounting of driver 615
 * (memacct.c of NVIDIA's open kernel modules), with the controller misc or dmem.
 */
#pragma once
#include "state.h"

/* The values of live.memory_limits. */
enum backend { BACKEND_NONE, BACKEND_MISC, BACKEND_DMEM };

/* A control group: by device and inode of its folder, 0 where this process does not see that, and by its path in the hierarchy. */
struct group {
	uint64_t device, inode;
	char path[256];
};

/* group_at finds the group with the folder; false if there is no folder. */
bool group_at(const char *folder, struct group *group);

/* group_own finds the group of this process. */
void group_own(struct group *group);

/* group_has reports whether the folder of a group has a file. */
bool group_has(const char *folder, const char *file);

/* group_controls reports whether a group has the controller of the backend: otherwise the group is charged above. */
bool group_controls(const char *folder, enum backend backend);

/* limit_of returns the position of the group's limit on the GPU; -1 without one. */
int limit_of(const struct memory_limit *limits, unsigned gpu, const struct group *group);

/* limit_group returns the path of the limit's group in the hierarchy. */
const char *limit_group(const struct memory_limit *limit);

/* What an allocation has charged: the position of its range in that of each limit; 0 ends the list. It has the size of CUDA's handle of memory between processes. */
struct charge {
	uint32_t gpu, mib;
	int64_t at[7];
};

/* memory_charge charges bytes on the GPU to the groups of this process that have limits; false where that exceeds one. It ends with the process. */
bool memory_charge(unsigned gpu, unsigned long long bytes, struct charge *charge);
void memory_release(const struct charge *charge);

/* memory_import makes the process hold what another one has charged: it counts once, as long as one of them holds it. */
void memory_import(const struct charge *charge);

/*
 * gpu_attach is called before a process uses the GPU; false where the driver cannot initialize it. With dmem, the process that finds the GPU in use by no other,
 * without persistence, is charged the driver's reserve (memacctInitGpuInfo). Here that ends with the process, there when nothing uses the GPU.
 */
bool gpu_attach(unsigned gpu);

/* memory_charged returns the bytes that are charged to the group of a limit. */
unsigned long long memory_charged(unsigned limit);

/* memory_seen returns how much of the GPU's memory, which is total, this process sees: a limit of a group above does not change that. charged is what
 * the group has allocated. */
unsigned long long memory_seen(unsigned gpu, unsigned long long total, unsigned long long *charged);
