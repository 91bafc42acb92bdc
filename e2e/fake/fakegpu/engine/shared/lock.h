/* Locks on ranges of the state file, and the futex. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* The file's lock bytes are far behind its end; they are taken in this order. */
enum {
	LOCK_BUSY = 1 << 28,		/* + GPU */
	LOCK_HOLDER = LOCK_BUSY + 256,	/* + GPU * 256 + instance * 16 + compute instance; HOLDS_GPU for all of it */
	LOCK_WATCH = LOCK_BUSY + 8192,	/* + GPU: shared by every NVML session that sees it */
	LOCK_MONITOR = LOCK_WATCH + 256, /* + GPU: shared by every such session in a container */
	LOCK_STATE = LOCK_BUSY - 1,
	LOCK_OPEN = LOCK_BUSY - 2,	/* shared by every process that has the driver open: its module is in use */
};

/* Above it: a range per limit of memory (charge.c). */
#define LOCK_CHARGE (1ll << 40)

/* The descriptor of the state file, and one that has no locks and so finds those of this process too (state.c). */
int state_fd(void);
int state_observer(void);

void lock_take(int fd, int64_t at);
void lock_release(int fd, int64_t at);

/* lock_share takes a lock that several processes may hold; it works on a read-only descriptor. */
bool lock_share(int fd, int64_t at);

/* The same for a range, as far as other descriptors' exclusive locks are concerned. */
bool lock_share_range(int fd, int64_t at, int64_t count);
void lock_release_range(int fd, int64_t at, int64_t count);

/* lock_found finds a range that another descriptor has locked, from start to before stop. */
bool lock_found(int fd, int64_t from, int64_t count, int64_t *start, int64_t *stop);

/* locked reports whether another descriptor has any lock in the range. */
bool locked(int fd, int64_t from, int64_t count);

/* futex_wait sleeps until woken, the deadline (CLOCK_MONOTONIC; none if NULL), or *word != seen. */
void futex_wait(const uint32_t *word, uint32_t seen, const struct timespec *deadline);
