/*
 * The process as a client of MPS. The server enforces its limits; this library enforces those of
 * the environment, which can only lower them.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "mps/wire.h"

enum { START_TIMEOUT = 300 /* seconds until a server that is starting counts as failed: machines of tests can pause for a minute */ };

static struct {
	bool serves; /* this process is an MPS server */
	bool unlimited; /* its list of limits has a device that it does not see */
	int fd;
	double percentage;
	unsigned devices;
	struct { char uuid[64]; unsigned long long limit; } device[MPS_DEVICES];
	CUresult broken; /* the result of every further call */
} mps = {.fd = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT CUresult fakegpuServe(void)
{
	mps.serves = true;
	return CUDA_SUCCESS;
}

/* shared_with checks that the server's file is in this process's shared memory and is writable. */
static bool shared_with(const char *path, const char *token)
{
	char found[32];
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool same = fd >= 0 && read(fd, found, sizeof found) == sizeof found && !memcmp(found, token, sizeof found);

	if (fd >= 0)
		close(fd);
	return same;
}

/* read_welcome reads the server's limits. */
static CUresult read_welcome(char *packet)
{
	char path[128], token[64];
	int code, overrides, at = 0;
	double own;

	if (sscanf(packet, "error %d", &code) == 1)
		return code;
	if (sscanf(packet, "welcome %127s %63s %lf %d %u%n", path, token, &mps.percentage, &overrides, &mps.devices, &at) != 5 ||
	    mps.devices > MPS_DEVICES || strlen(token) != 32 || !shared_with(path, token))
		return CUDA_ERROR_MPS_CONNECTION_FAILED;
	for (unsigned i = 0; i < mps.devices; i++) {
		int more;
		if (sscanf(packet + at, " %63s %llu%n", mps.device[i].uuid, &mps.device[i].limit, &more) != 2)
			return CUDA_ERROR_MPS_CONNECTION_FAILED;
		at += more;
	}
	const char *percentage = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	if (percentage && !overrides && parse_percentage(percentage, &own) && own < mps.percentage)
		mps.percentage = own;
	return CUDA_SUCCESS;
}

/* names_all reports whether the process sees every device of a list of limits. */
static bool names_all(const char *list)
{
	char *copy = strdup(list), *rest = copy, *one, *end;
	bool all = true;

	while (copy && (one = strsep(&rest, ","))) {
		bool seen = false;
		one[strcspn(one, "=")] = 0;
		unsigned long number = strtoul(one, &end, 10);
		for (unsigned i = 0; i < mps.devices; i++)
			seen |= *one && (*end ? !strncmp(mps.device[i].uuid, one, strlen(one)) : number == i);
		all &= seen;
	}
	free(copy);
	return all;
}

CUresult mps_connect(void)
{
	struct timeval timeout = {.tv_sec = START_TIMEOUT};
	char packet[PACKET];
	CUresult result = CUDA_ERROR_MPS_CONNECTION_FAILED;

	if (mps.serves || mps.fd >= 0)
		return CUDA_SUCCESS;
	int fd = dial();
	if (fd < 0)
		return CUDA_SUCCESS;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	if (post(fd, -1, "client") && fetch(fd, packet, NULL))
		result = read_welcome(packet);
	if (result == CUDA_SUCCESS)
		mps.fd = fd;
	else
		close(fd);
	/* A list with a device that the process does not see removes all limits, those of the server too (measured with drivers 580 and 615). */
	const char *own = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	if (mps.fd >= 0 && own && *own && !names_all(own)) {
		mps.unlimited = true;
		if (!post(mps.fd, -1, "unlimit 0 0") || !fetch(mps.fd, packet, NULL))
			return CUDA_ERROR_MPS_RPC_FAILURE;
	}
	return result;
}

bool mps_client(void) { return mps.fd >= 0; }

/* portion returns the multiprocessors of a percentage: they come in pairs. */
static unsigned portion(unsigned all)
{
	unsigned part = (unsigned)(all * mps.percentage / 100) & ~1u;

	return mps.percentage >= 100 ? all : part < 2 ? 2 : part;
}

bool mps_device(struct device *d, unsigned number)
{
	const char *own = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	char uuid[64];

	device_uuid(d, uuid, sizeof uuid);
	for (unsigned i = 0; i < mps.devices; i++) {
		if (strcmp(mps.device[i].uuid, uuid))
			continue;
		d->served = i;
		d->limit = own && !mps.unlimited ? memory_limit(own, number, uuid) : 0;
		d->multiprocessors = portion(d->multiprocessors);
		return true;
	}
	return false;
}

/* answer reads the server's answer; any other packet ends the connection to the server. */
static CUresult answer(unsigned long long *room)
{
	char packet[PACKET];
	int code;

	if (!fetch(mps.fd, packet, NULL))
		return mps.broken = CUDA_ERROR_MPS_RPC_FAILURE;
	if (room && sscanf(packet, "ok %llu", room) == 1)
		return CUDA_SUCCESS;
	if (sscanf(packet, "error %d", &code) == 1 && code == CUDA_ERROR_OUT_OF_MEMORY)
		return code;
	return mps.broken = sscanf(packet, "error %d", &code) == 1 ? code : CUDA_ERROR_MPS_RPC_FAILURE;
}

CUresult mps_alive(void)
{
	struct pollfd wait = {.fd = mps.fd, .events = POLLIN};

	if (!mps_client())
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	if (mps.broken == CUDA_SUCCESS && poll(&wait, 1, 0) > 0)
		answer(NULL);
	CUresult result = mps.broken;
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult mps_memory(const char *verb, const struct device *d, size_t size, unsigned long long *room)
{
	CUresult result = mps_alive();

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	if (post(mps.fd, -1, "%s %u %zu", verb, d->served, size))
		result = answer(room);
	else
		result = mps.broken = CUDA_ERROR_MPS_RPC_FAILURE;
	pthread_mutex_unlock(&lock);
	return result;
}
