#define _GNU_SOURCE
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state.h"

static int range(int fd, int command, short type, int64_t from, int64_t count, struct flock *out)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = count};
	int result;

	do {
		result = fcntl(fd, command, &lock);
	} while (result && errno == EINTR);
	if (out)
		*out = lock;
	return result;
}

void lock_take(int fd, int64_t at) { range(fd, F_OFD_SETLKW, F_WRLCK, at, 1, NULL); }
void lock_release(int fd, int64_t at) { range(fd, F_OFD_SETLK, F_UNLCK, at, 1, NULL); }
bool lock_share(int fd, int64_t at) { return !range(fd, F_OFD_SETLK, F_RDLCK, at, 1, NULL); }

void lock_release_range(int fd, int64_t at, int64_t count) { range(fd, F_OFD_SETLK, F_UNLCK, at, count, NULL); }
bool lock_share_range(int fd, int64_t at, int64_t count) { return !range(fd, F_OFD_SETLK, F_RDLCK, at, count, NULL); }

bool lock_found(int fd, int64_t from, int64_t count, int64_t *start, int64_t *stop)
{
	struct flock found;

	if (range(fd, F_OFD_GETLK, F_WRLCK, from, count, &found) || found.l_type == F_UNLCK)
		return false;
	*start = found.l_start;
	*stop = found.l_start + found.l_len;
	return true;
}

bool locked(int fd, int64_t from, int64_t count)
{
	int64_t start, stop;

	return lock_found(fd, from, count, &start, &stop);
}

void futex_wait(const uint32_t *word, uint32_t seen, const struct timespec *deadline)
{
	syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

/* Threads of one process share its descriptor: a mutex is taken before each GPU's lock. */
static pthread_mutex_t busy[MAX_GPUS] = {[0 ... MAX_GPUS - 1] = PTHREAD_MUTEX_INITIALIZER};

void gpu_busy_begin(unsigned gpu)
{
	pthread_mutex_lock(&busy[gpu]);
	lock_take(state_fd(), LOCK_BUSY + gpu);
}

void gpu_busy_end(unsigned gpu)
{
	lock_release(state_fd(), LOCK_BUSY + gpu);
	pthread_mutex_unlock(&busy[gpu]);
}

static int64_t holder(unsigned gpu, unsigned instance, unsigned compute)
{
	return LOCK_HOLDER + gpu * 256 + instance * 16 + compute;
}

bool holder_take(unsigned gpu, unsigned instance, unsigned compute)
{
	return lock_share(state_fd(), holder(gpu, instance, compute));
}

void holder_release(unsigned gpu, unsigned instance, unsigned compute)
{
	lock_release(state_fd(), holder(gpu, instance, compute));
}

bool held(unsigned gpu, unsigned instance, unsigned compute, unsigned count)
{
	return locked(state_fd(), holder(gpu, instance, compute), count);
}

void gpu_watch(unsigned gpu)
{
	lock_share(state_fd(), LOCK_WATCH + gpu);
	if (!state_writable())
		lock_share(state_fd(), LOCK_MONITOR + gpu);
}

bool gpu_monitored(unsigned gpu) { return locked(state_fd(), LOCK_MONITOR + gpu, 1); }
bool gpu_watched(unsigned gpu) { return locked(state_fd(), LOCK_WATCH + gpu, 1); }

/* flock(2) is a lock apart from those on ranges, and a read-only descriptor can have it exclusively. */
void holding_begin(void)
{
	while (flock(state_fd(), LOCK_EX) && errno == EINTR)
		;
}

void holding_end(void) { flock(state_fd(), LOCK_UN); }
