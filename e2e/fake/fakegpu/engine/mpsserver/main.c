/*
 * nvidia-cuda-mps-server: it holds the devices for its clients, which are connections that the
 * control daemon hands over. The use of each client is counted here, so a client cannot exceed its
 * limits. The server ends with the control daemon.
 *
 *   nvidia-cuda-mps-server DESCRIPTOR PERCENTAGE MEMORY [loud]
 *
 * It is started by the control daemon, with a socket to it and the limits.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mps/log.h"
#include "mps/wire.h"

struct device {
	unsigned char uuid[16];
	bool mig;
	uint64_t memory, used, limit;
};

struct client {
	int fd;
	pid_t pid;
	uint64_t limit[MPS_DEVICES], used[MPS_DEVICES];
};

static struct {
	int control;
	double percentage;
	unsigned devices, clients;
	struct device device[MPS_DEVICES];
	struct client client[MPS_CLIENTS];
	char token[33], shared[64];
	bool ending;
} server;

static void finish(int status)
{
	unlink(server.shared);
	log_line("Server exiting");
	exit(status);
}

static void uuid_text(const struct device *d, char *text, size_t size)
{
	const unsigned char *b = d->uuid;

	snprintf(text, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", d->mig ? "MIG" : "GPU",
		 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* fail reports to the control daemon why the server does not start. */
static void fail(const char *what, int code)
{
	log_line("Failed to start : %s: CUDA error %d", what, code);
	post(server.control, -1, "failed %d %s", code, what);
	exit(1);
}

#define CALL(name, ...)                                                                       \
	do {                                                                                  \
		int (*function_)() = (int (*)())dlsym(library, #name);                        \
		int code_ = function_ ? function_(__VA_ARGS__) : MPS_CONNECTION_FAILED;       \
		if (code_)                                                                    \
			fail(#name, code_);                                                   \
	} while (0)

/* hold opens the devices as libcuda lists them and creates a context on each. */
static void hold(void *library, const char *limits)
{
	int count = 0;
	void *context;

	CALL(fakegpuServe);
	CALL(cuInit, 0);
	CALL(cuDeviceGetCount, &count);
	server.devices = count < MPS_DEVICES ? count : MPS_DEVICES;
	for (unsigned i = 0; i < server.devices; i++) {
		struct device *d = &server.device[i];
		unsigned char parent[16];
		char name[160] = "", uuid[64];
		size_t memory = 0;
		CALL(cuDeviceGetUuid, parent, (int)i);
		CALL(cuDeviceGetUuid_v2, d->uuid, (int)i);
		CALL(cuDeviceTotalMem_v2, &memory, (int)i);
		CALL(cuDeviceGetName, name, (int)sizeof name, (int)i);
		CALL(cuDevicePrimaryCtxRetain, &context, (int)i);
		log_line("Creating server context on device %u (%s)", i, name);
		d->mig = memcmp(parent, d->uuid, sizeof parent) != 0;
		d->memory = memory;
		uuid_text(d, uuid, sizeof uuid);
		d->limit = memory_limit(limits, i, uuid);
		if (d->limit)
			log_line("Device pinned memory limit for device %u set to 0x%llx bytes", i, (unsigned long long)d->limit);
	}
}

/* share creates a file in shared memory; a client must find it there. */
static void share(void)
{
	unsigned char random[16];

	if (getrandom(random, sizeof random, 0) != sizeof random)
		fail("getrandom", MPS_CONNECTION_FAILED);
	for (unsigned i = 0; i < sizeof random; i++)
		snprintf(server.token + 2 * i, 3, "%02x", random[i]);
	snprintf(server.shared, sizeof server.shared, "/dev/shm/mps.shm.%u.%.8s", getuid(), server.token);
	int fd = open(server.shared, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0 || fchmod(fd, 0666) || write(fd, server.token, 32) != 32)
		fail(server.shared, MPS_CONNECTION_FAILED);
	close(fd);
	log_line("Created shared memory region %s", server.shared);
}

static void drop(unsigned at)
{
	struct client *c = &server.client[at];

	for (unsigned i = 0; i < server.devices; i++)
		server.device[i].used -= c->used[i];
	log_line("Client {PID: %d} disconnected", c->pid);
	post(server.control, -1, "gone %d", c->pid);
	close(c->fd);
	*c = server.client[--server.clients];
	if (server.ending && !server.clients)
		finish(0);
}

/* The limits of a client: those of the server, or in version 3 those of its namespace. */
struct terms {
	bool named;
	double percentage; /* of a namespace; 0 for none */
	unsigned long long memory;
};

/* join accepts a new client and sends it its current limits. The percentage of a namespace overrides that of the client's environment. */
static void join(int fd, pid_t pid, struct terms terms)
{
	char text[PACKET], uuid[64];
	double percentage = !terms.named ? server.percentage : terms.percentage ? terms.percentage : 100;
	int length = snprintf(text, sizeof text, "welcome %s %s %g %d %u", server.shared, server.token, percentage,
			      terms.named && terms.percentage, server.devices);

	if (server.clients == MPS_CLIENTS || server.ending) {
		post(fd, -1, "error %d", server.ending ? MPS_SERVER_NOT_READY : MPS_MAX_CLIENTS_REACHED);
		post(server.control, -1, "gone %d", pid);
		close(fd);
		return;
	}
	struct client *c = &server.client[server.clients++];
	*c = (struct client){.fd = fd, .pid = pid};
	for (unsigned i = 0; i < server.devices; i++) {
		c->limit[i] = terms.named ? terms.memory : server.device[i].limit;
		uuid_text(&server.device[i], uuid, sizeof uuid);
		length += snprintf(text + length, sizeof text - length, " %s %llu", uuid, (unsigned long long)c->limit[i]);
	}
	log_line("Client {PID: %d} connected", pid);
	if (!post(fd, -1, "%s", text))
		drop(server.clients - 1);
}

/* room returns how much of a device a client may still allocate. */
static uint64_t room(const struct client *c, unsigned device)
{
	const struct device *d = &server.device[device];
	uint64_t left = d->memory - d->used;

	if (c->limit[device] && c->limit[device] - c->used[device] < left)
		left = c->limit[device] - c->used[device];
	return left;
}

static void serve(unsigned at)
{
	struct client *c = &server.client[at];
	char packet[PACKET], verb[16];
	unsigned device;
	unsigned long long bytes = 0;

	if (!fetch(c->fd, packet, NULL)) {
		drop(at);
		return;
	}
	if (sscanf(packet, "%15s %u %llu", verb, &device, &bytes) < 2 || device >= server.devices) {
		log_line("Receive command failed, assuming client exit");
		drop(at);
		return;
	}
	if (!strcmp(verb, "unlimit"))
		memset(c->limit, 0, sizeof c->limit);
	bool takes = !strcmp(verb, "take"), gives = !strcmp(verb, "give");
	if ((takes && bytes > room(c, device)) || (gives && bytes > c->used[device])) {
		post(c->fd, -1, "error %d", MPS_OUT_OF_MEMORY);
		return;
	}
	c->used[device] += takes ? bytes : gives ? -bytes : 0;
	server.device[device].used += takes ? bytes : gives ? -bytes : 0;
	post(c->fd, -1, "ok %llu", (unsigned long long)room(c, device));
}

static void terminate(pid_t pid)
{
	for (unsigned i = server.clients; i-- > 0;)
		if (!pid || server.client[i].pid == pid) {
			post(server.client[i].fd, -1, "error %d", MPS_CLIENT_TERMINATED);
			drop(i);
		}
}

/* handle_command executes a command of the control daemon. */
static void handle_command(void)
{
	char packet[PACKET];
	unsigned device;
	unsigned long long bytes;
	int fd, pid;
	struct terms terms = {0};

	if (!fetch(server.control, packet, &fd)) {
		log_line("Lost the control daemon");
		finish(1);
	}
	int limits = sscanf(packet, "client %d %lf %llu", &pid, &terms.percentage, &terms.memory);
	terms.named = limits == 3;
	if (limits >= 1 && fd >= 0)
		join(fd, pid, terms);
	else if (sscanf(packet, "percentage %lf", &server.percentage) == 1)
		log_line("Active Threads Percentage set to %.1f", server.percentage);
	else if (sscanf(packet, "memory %u %llu", &device, &bytes) == 2 && device < server.devices) {
		server.device[device].limit = bytes;
		log_line("Device pinned memory limit for device %u set to 0x%llx bytes", device, bytes);
	} else if (sscanf(packet, "terminate %d", &pid) == 1)
		terminate(pid);
	else if (!strcmp(packet, "shutdown"))
		server.ending = true;
	if (server.ending && !server.clients)
		finish(0);
}

static void loop(void)
{
	for (;;) {
		struct pollfd waits[MPS_CLIENTS + 1] = {{.fd = server.control, .events = POLLIN}};
		unsigned count = server.clients;
		for (unsigned i = 0; i < count; i++)
			waits[i + 1] = (struct pollfd){.fd = server.client[i].fd, .events = POLLIN};
		if (poll(waits, count + 1, -1) <= 0)
			continue;
		/* From the last one: a client that leaves is replaced by the last. */
		for (unsigned i = count; i-- > 0;)
			if (waits[i + 1].revents)
				serve(i);
		if (waits[0].revents)
			handle_command();
	}
}

static void stop(int signal)
{
	(void)signal;
	unlink(server.shared);
	_exit(1);
}

int main(int count, char **arguments)
{
	if (count < 4) {
		fprintf(stderr, "nvidia-cuda-mps-server is started by nvidia-cuda-mps-control\n");
		return 1;
	}
	server.control = atoi(arguments[1]);
	fcntl(server.control, F_SETFD, FD_CLOEXEC);
	signal(SIGTERM, stop);
	server.percentage = atof(arguments[2]);
	log_open("server.log", "Server", count > 4);
	log_line("Startup");
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		log_line("%s", dlerror());
		fail("libcuda.so.1", MPS_CONNECTION_FAILED);
	}
	hold(library, arguments[3]);
	share();
	log_line("Active Threads Percentage set to %.1f", server.percentage);
	log_line("Server has started");
	post(server.control, -1, "ready %s", server.shared);
	loop();
}
