#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lock.h"

static struct {
	int fd, observer;
	bool writable;
	struct state_file *map;
} state = {.fd = -1, .observer = -1};

/* The path of the library when it was loaded: a driver that replaces it later is another one. */
static struct {
	char state_path[PATH_MAX + 128];
	char version[64];
} home;

static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;

/* The state file is in the folder of the library and has the same version behind ".so." */
__attribute__((constructor)) static void find_home(void)
{
	Dl_info info;
	char real[PATH_MAX];

	if (!dladdr((void *)find_home, &info) || !realpath(info.dli_fname, real))
		return;
	char *name = strrchr(real, '/');
	char *version = name ? strstr(name, ".so.") : NULL;
	if (!version)
		return;
	snprintf(home.version, sizeof home.version, "%s", version + strlen(".so."));
	*name = 0;
	snprintf(home.state_path, sizeof home.state_path, "%s/libnvidia-fakestate.so.%s", real, home.version);
}

static bool valid(const struct state_file *map, off_t size)
{
	return (size_t)size == sizeof *map && !strcmp(map->magic, STATE_MAGIC) &&
	       map->version == STATE_VERSION && map->size == sizeof *map;
}

enum state_error state_open(void)
{
	struct stat st;

	int fd = open(home.state_path, O_RDWR | O_CLOEXEC);
	bool writable = fd >= 0;
	if (!writable)
		fd = open(home.state_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return STATE_MISSING;
	if (fstat(fd, &st) || st.st_size < (off_t)sizeof(struct state_file)) {
		close(fd);
		return STATE_FOREIGN;
	}
	struct state_file *map = mmap(NULL, sizeof *map, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (map == MAP_FAILED || !valid(map, st.st_size)) {
		if (map != MAP_FAILED)
			munmap(map, sizeof *map);
		close(fd);
		return STATE_FOREIGN;
	}
	lock_share(fd, LOCK_OPEN); /* refused only while the module is being unloaded: then nothing is loaded a moment later */
	state.fd = fd;
	state.observer = open(home.state_path, O_RDONLY | O_CLOEXEC);
	state.writable = writable;
	state.map = map;
	return STATE_OK;
}

void state_close(void)
{
	munmap(state.map, sizeof *state.map);
	close(state.fd);
	close(state.observer);
	state.fd = state.observer = -1;
	state.map = NULL;
}

bool state_writable(void) { return state.writable; }
const char *library_version(void) { return home.version; }
const struct hardware *hardware(void) { return &state.map->hardware; }
int state_fd(void) { return state.fd; }
int state_observer(void) { return state.observer; }

/*
 * A copy of what is current is good when no change was committed while it was made: the next
 * change goes to the other half, only the one after it overwrites this half.
 */
static const struct live *read_begin(uint32_t *generation)
{
	*generation = __atomic_load_n(&state.map->generation, __ATOMIC_ACQUIRE);
	return &state.map->live[*generation % 2];
}

static bool read_retry(uint32_t generation)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&state.map->generation, __ATOMIC_RELAXED) != generation;
}

void live_head(struct live_head *copy)
{
	uint32_t generation;

	do {
		const struct live *live = read_begin(&generation);
		copy->serial = live->serial;
		copy->loads = live->loads;
		copy->loaded = live->loaded;
		copy->cuda_version = live->cuda_version;
		copy->create_ms = live->create_ms;
		copy->destroy_ms = live->destroy_ms;
		memcpy(copy->driver_version, live->driver_version, sizeof copy->driver_version);
	} while (read_retry(generation));
}

bool live_stalls(void)
{
	uint32_t generation;
	bool stalls;

	do {
		stalls = read_begin(&generation)->stalls;
	} while (read_retry(generation));
	return stalls;
}

void live_gpu(unsigned gpu, struct gpu_state *copy)
{
	uint32_t generation;

	do {
		*copy = read_begin(&generation)->gpus[gpu];
	} while (read_retry(generation));
}

uint32_t live_limits(struct memory_limit *copy)
{
	uint32_t generation, backend;

	do {
		const struct live *live = read_begin(&generation);
		backend = live->memory_limits;
		memcpy(copy, live->limits, sizeof live->limits);
	} while (read_retry(generation));
	return backend;
}

bool live_fault(const char *function, struct fault *copy)
{
	uint32_t generation;
	bool found;

	do {
		const struct live *live = read_begin(&generation);
		found = false;
		for (unsigned i = 0; i < live->fault_count && i < MAX_FAULTS && !found; i++) {
			*copy = live->faults[i];
			found = !strcmp(copy->function, function);
		}
	} while (read_retry(generation));
	return found;
}

struct live *state_begin(void)
{
	pthread_mutex_lock(&writers);
	lock_take(state.fd, LOCK_STATE);
	uint32_t generation = state.map->generation;
	struct live *next = &state.map->live[(generation + 1) % 2];
	*next = state.map->live[generation % 2];
	return next;
}

void state_commit(void)
{
	__atomic_fetch_add(&state.map->generation, 1, __ATOMIC_ACQ_REL);
	state_abort();
}

void state_abort(void)
{
	lock_release(state.fd, LOCK_STATE);
	pthread_mutex_unlock(&writers);
}

uint32_t event_count(void)
{
	return __atomic_load_n(&state.map->event_count, __ATOMIC_ACQUIRE);
}

bool event_copy(uint32_t number, struct event *copy)
{
	*copy = state.map->events[number % MAX_EVENTS];
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return event_count() - number < MAX_EVENTS;
}

void event_wait(uint32_t seen, const struct timespec *deadline)
{
	futex_wait(&state.map->event_count, seen, deadline);
}
