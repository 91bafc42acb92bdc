/*
 * The state of all fake GPUs of a machine: one mapped file, shared by every process that loads the
 * library, on the host and in containers.
 *
 * Reading needs no lock: live_gpu() and live_head() copy the current state. Changing is state_begin(), write to what it returns,
 * state_commit(); a process that dies before the commit has changed nothing, and the kernel releases its lock.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "layout.h"

enum state_error {
	STATE_OK,
	STATE_MISSING,	/* there is no state file in the folder of the library */
	STATE_FOREIGN,	/* it is of another version */
};

/* The part of the state that is not per GPU. */
struct live_head {
	uint64_t serial;
	uint32_t loads, loaded, cuda_version, create_ms, destroy_ms;
	char driver_version[sizeof(((struct live *)0)->driver_version)];
};

/* state_open maps the state file in the folder of the library. Until state_close, or the end of the process, the driver's module is in use. */
enum state_error state_open(void);
void state_close(void);

/* state_writable is true on the host and false in a container, which has the file read-only. */
bool state_writable(void);

/* library_version is the driver version in the library's own file name. */
const char *library_version(void);

const struct hardware *hardware(void);
void live_head(struct live_head *copy);
bool live_stalls(void);
void live_gpu(unsigned gpu, struct gpu_state *copy);

/* live_limits copies the limits of memory, MAX_LIMITS of them, and returns the backend (charge.h). */
uint32_t live_limits(struct memory_limit *copy);

/* live_fault copies the fault of a function; false when there is none. */
bool live_fault(const char *function, struct fault *copy);

/* state_begin waits for the lock for changes and returns a copy to write to. */
struct live *state_begin(void);
void state_commit(void);
void state_abort(void);

/* Events: the count so far, a copy of one, and a wait until the count differs from seen. */
uint32_t event_count(void);
bool event_copy(uint32_t number, struct event *copy);
void event_wait(uint32_t seen, const struct timespec *deadline);

/*
 * Locks that end with the process. A GPU is busy while an instance on it is created or destroyed; it is held by every CUDA context on it,
 * of any process in any container.
 */
void gpu_busy_begin(unsigned gpu);
void gpu_busy_end(unsigned gpu);
bool holder_take(unsigned gpu, unsigned instance, unsigned compute);
void holder_release(unsigned gpu, unsigned instance, unsigned compute);
bool held(unsigned gpu, unsigned instance, unsigned compute, unsigned count);

/* gpu_watch marks the GPU as opened for queries by this process until state_close; gpu_watched reports whether another process has it open. */
void gpu_watch(unsigned gpu);
bool gpu_watched(unsigned gpu);

/* gpu_monitored reports whether a process in a container has the GPU open for queries: a program of monitoring. */
bool gpu_monitored(unsigned gpu);

/* In the place of an instance: a context on a whole GPU. Clients of MPS use the second "compute instance" there, so that the server holds
 * the GPU and its clients do too. */
enum { HOLDS_GPU = 15 };

/* Between the two, no other process takes or releases a GPU; in containers too. */
void holding_begin(void);
void holding_end(void);
