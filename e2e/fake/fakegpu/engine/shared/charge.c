#define _GNU_SOURCE
#include "charge.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lock.h"

#define HIERARCHY "/fs/cgroup"
#define MIB (1ull << 20)

enum { CGROUP2_MAGIC = 0x63677270, MOST_PARTS = sizeof ((struct charge *)0)->at / sizeof(int64_t) };

const char *limit_group(const struct memory_limit *limit)
{
	const char *found = strstr(limit->path, HIERARCHY);

	return found ? found + strlen(HIERARCHY) : limit->path;
}

bool group_at(const char *folder, struct group *group)
{
	struct stat info;

	if (*folder != '/' || stat(folder, &info) || !S_ISDIR(info.st_mode) || strlen(folder) >= sizeof group->path)
		return false;
	*group = (struct group){.device = info.st_dev, .inode = info.st_ino};
	struct memory_limit limit;
	strcpy(limit.path, folder);
	strcpy(group->path, limit_group(&limit));
	return true;
}

bool group_has(const char *folder, const char *file)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", folder, file);
	return access(path, F_OK) == 0;
}

bool group_controls(const char *folder, enum backend backend)
{
	char path[512], text[512] = "";
	const char *name = backend == BACKEND_DMEM ? "dmem" : "misc";

	snprintf(path, sizeof path, "%s/cgroup.controllers", folder);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	bool found = false;
	while (!found && fscanf(file, "%511s", text) == 1)
		found = !strcmp(text, name);
	fclose(file);
	return found;
}

/* see_own finds the group of this process in the hierarchy that it sees, if that is one of version 2. */
static void see_own(struct group *group)
{
	char folder[sizeof group->path + 32];
	struct statfs system;
	struct group found;

	snprintf(folder, sizeof folder, "/sys" HIERARCHY "%s", group->path);
	if (statfs(folder, &system) == 0 && system.f_type == CGROUP2_MAGIC && group_at(folder, &found)) {
		group->device = found.device;
		group->inode = found.inode;
	}
}

/* A process on the host can be given another group, with FAKE_NVML_CGROUP. */
void group_own(struct group *group)
{
	char line[4096];
	const char *given = state_writable() ? getenv("FAKE_NVML_CGROUP") : NULL;

	*group = (struct group){0};
	if (given && group_at(given, group))
		return;
	FILE *file = fopen("/proc/self/cgroup", "re");
	while (file && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "0::", 3) && strlen(line + 3) < sizeof group->path) {
			strcpy(group->path, line + 3);
			see_own(group);
		}
	}
	if (file)
		fclose(file);
}

static bool same(const struct memory_limit *limit, const struct group *group)
{
	if (group->inode && limit->inode == group->inode && limit->device == group->device)
		return true;
	return group->path[0] && group->path[1] && !strcmp(limit_group(limit), group->path);
}

int limit_of(const struct memory_limit *limits, unsigned gpu, const struct group *group)
{
	for (int i = 0; i < MAX_LIMITS; i++)
		if (limits[i].used && limits[i].gpu == gpu && same(&limits[i], group))
			return i;
	return -1;
}

/* above reports whether the limit is of a group above. */
static bool above(const struct memory_limit *limit, const struct group *group)
{
	const char *path = limit_group(limit);
	size_t length = strlen(path);

	return length > 1 && !strncmp(group->path, path, length) && group->path[length] == '/';
}

/*
 * binding lists the limits that an allocation counts against: with dmem those of the group and of all above it, with misc the nearest one, though it may be
 * "no limit". A limit of a group without the controller never binds.
 */
static unsigned binding(const struct memory_limit *limits, enum backend backend, unsigned gpu, const struct group *group, unsigned *list, unsigned most)
{
	unsigned count = 0;
	size_t nearest = 0;

	for (unsigned i = 0; i < MAX_LIMITS; i++) {
		const struct memory_limit *limit = &limits[i];
		bool own = same(limit, group);
		if (!limit->used || limit->gpu != gpu || !limit->binds || !(own || above(limit, group)))
			continue;
		size_t depth = own ? sizeof limit->path : strlen(limit_group(limit));
		if (backend == BACKEND_DMEM) {
			if (count < most)
				list[count++] = i;
		} else if (depth > nearest) {
			nearest = depth;
			list[0] = i;
			count = 1;
		}
	}
	return count;
}

/*
 * Charges are locks on the state file: one byte is a MiB, in a range per limit. So a container, which cannot write the state, can charge, every process can
 * count, and the kernel releases what a process has charged when it ends.
 */
static int64_t range_of(unsigned limit) { return LOCK_CHARGE + ((int64_t)limit << 32); }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* count counts the bytes in a range that processes have locked, and finds the end of the last. */
static int64_t count(int64_t from, int64_t to, int64_t *end)
{
	int64_t start, stop;

	if (from >= to || !lock_found(state_observer(), from, to - from, &start, &stop))
		return 0;
	start = start < from ? from : start;
	stop = stop > to ? to : stop;
	if (stop > *end)
		*end = stop;
	return stop - start + count(from, start, end) + count(stop, to, end);
}

static int64_t charged(unsigned limit, int64_t *end)
{
	*end = range_of(limit);
	return count(range_of(limit), range_of(limit + 1), end);
}

unsigned long long memory_charged(unsigned limit)
{
	int64_t end;

	return charged(limit, &end) * MIB;
}

void memory_release(const struct charge *charge)
{
	for (unsigned i = 0; i < MOST_PARTS && charge->at[i]; i++)
		lock_release_range(state_fd(), charge->at[i], charge->mib);
}

void memory_import(const struct charge *charge)
{
	for (unsigned i = 0; i < MOST_PARTS && charge->at[i]; i++)
		lock_share_range(state_fd(), charge->at[i], charge->mib);
}

static bool charge_part(const struct memory_limit *limit, unsigned number, unsigned mib, int64_t *at)
{
	int64_t end, used = charged(number, &end);

	if (limit->hard != UINT64_MAX && (used + mib) * MIB > limit->hard)
		return false;
	if (!lock_share_range(state_fd(), end, mib))
		return false;
	*at = end;
	return true;
}

bool memory_charge(unsigned gpu, unsigned long long bytes, struct charge *charge)
{
	struct memory_limit limits[MAX_LIMITS];
	struct gpu_state state;
	struct group group;
	unsigned list[MOST_PARTS];
	enum backend backend = live_limits(limits);

	*charge = (struct charge){.gpu = gpu, .mib = (bytes + MIB - 1) / MIB};
	live_gpu(gpu, &state);
	if (backend == BACKEND_NONE || state.mig)
		return true;
	group_own(&group);
	unsigned parts = binding(limits, backend, gpu, &group, list, MOST_PARTS);
	if (!parts && state.inherited_limit)
		return charge->mib * MIB <= state.inherited_limit;
	bool fits = true;
	pthread_mutex_lock(&lock);
	holding_begin();
	for (unsigned i = 0; i < parts && fits; i++)
		fits = charge_part(&limits[list[i]], list[i], charge->mib, &charge->at[i]);
	if (!fits)
		memory_release(charge);
	holding_end();
	pthread_mutex_unlock(&lock);
	return fits;
}

bool gpu_attach(unsigned gpu)
{
	struct memory_limit limits[MAX_LIMITS];
	struct gpu_state state;
	struct charge reserve;

	live_gpu(gpu, &state);
	if (live_limits(limits) != BACKEND_DMEM || state.persistence || gpu_watched(gpu) || held(gpu, 0, 0, 256))
		return true;
	return memory_charge(gpu, hardware()->models[hardware()->gpus[gpu].model].reserved_mib * MIB, &reserve);
}

unsigned long long memory_seen(unsigned gpu, unsigned long long total, unsigned long long *used)
{
	struct memory_limit limits[MAX_LIMITS];
	struct group group;

	*used = 0;
	if (live_limits(limits) == BACKEND_NONE)
		return total;
	group_own(&group);
	int found = limit_of(limits, gpu, &group);
	if (found < 0 || !limits[found].binds || limits[found].hard >= total)
		return total;
	*used = memory_charged(found);
	return limits[found].hard;
}
