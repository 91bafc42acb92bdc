/* The daemon: its connections, and how it ends. */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 128 };

/* A connection that has not been handed over: a command line, or one that has not sent its kind
 * yet. */
static struct connection { int fd; bool ui; struct server *server; struct namespace *space; } connection[CONNECTIONS];
static unsigned connections;

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void finish(int status)
{
	char path[PATH_MAX];

	for (unsigned i = 0; i < SERVERS; i++)
		if (control.server[i].pid) {
			kill(control.server[i].pid, SIGTERM);
			reap(&control.server[i]);
		}
	if (pipe_path(path, "control"))
		unlink(path);
	if (pipe_path(path, "nvidia-cuda-mps-control.pid"))
		unlink(path);
	log_line("Exit");
	if (control.quit >= 0)
		post(control.quit, -1, "%s", "");
	exit(status);
}

/* claim makes this the only daemon of the folder, by a lock that ends with its holder. */
static void claim(void)
{
	char path[PATH_MAX];
	FILE *file;

	int fd = pipe_path(path, "control_lock") ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd < 0) {
		puts("Cannot find MPS control daemon process");
		exit(1);
	}
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		puts("An instance of this daemon is already running");
		exit(1);
	}
	file = pipe_path(path, "nvidia-cuda-mps-control.pid") ? fopen(path, "we") : NULL;
	if (file) {
		fprintf(file, "%d", getpid());
		fclose(file);
	}
}

int listen_at(const char *folder)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char name[PATH_MAX];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (*folder && pipe_path(address.sun_path, folder))
		mkdir(address.sun_path, 0755);
	snprintf(name, sizeof name, "%s%scontrol", folder, *folder ? "/" : "");
	if (fd < 0 || !pipe_path(address.sun_path, name) || (unlink(address.sun_path) && errno != ENOENT) ||
	    bind(fd, (struct sockaddr *)&address, sizeof address) || chmod(address.sun_path, 0777) || listen(fd, CONNECTIONS)) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

/*
 * read_limits takes the default percentage from the environment. CUDA_MPS_PINNED_DEVICE_MEM_LIMIT has no effect on a daemon, in any form (measured on an
 * H200, driver 580).
 */
static void read_limits(void)
{
	const char *percentage = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	double value;

	if (percentage && parse_percentage(percentage, &value))
		control.percentage = value;
}

static void close_connection(unsigned at)
{
	if (connection[at].ui)
		log_line("UI closed");
	if (connection[at].fd == control.quit)
		control.quit = -1;
	close(connection[at].fd);
	connection[at] = connection[--connections];
}

/* route finds the server of a client: that of its socket, or in version 3 at the daemon's socket the one of its user, with the default namespace. */
static struct server *route(struct connection *c, uid_t uid, int *code)
{
	if (control.quitting)
		return NULL;
	if (c->server)
		return c->server->pid ? c->server : NULL; /* it can have ended */
	if (control.protocol == 2)
		return server_for(uid, code);
	for (unsigned i = 0; i < SERVERS; i++)
		if (control.server[i].pid && (control.multiuser || control.server[i].uid == uid)) {
			c->space = &control.server[i].space[0];
			return &control.server[i];
		}
	return NULL;
}

/*
 * hand_over gives a client to a server, or sends it the error when there is none. In version 3 it has the limits of its namespace, and those of memory only
 * if its process ID is one of the daemon's PID namespace.
 */
static void hand_over(struct connection *c, pid_t pid, uid_t uid)
{
	int code = MPS_SERVER_NOT_READY;
	struct server *server = route(c, uid, &code);
	bool sent = false;

	if (server && c->space)
		sent = post(server->fd, c->fd, "client %d %g %llu", pid, c->space->percentage, pid ? (unsigned long long)c->space->memory : 0);
	else if (server)
		sent = post(server->fd, c->fd, "client %d", pid);
	if (!sent) {
		post(c->fd, -1, "error %d", code);
		return;
	}
	if (server->clients < MPS_CLIENTS) {
		server->in[server->clients] = c->space;
		server->client[server->clients++] = pid;
	}
}

static void greet(unsigned at, const char *packet)
{
	int fd = connection[at].fd;
	pid_t pid;
	uid_t uid;

	bool known = peer(fd, &pid, &uid), trusted = known && (!uid || uid == getuid());
	if (known && !strcmp(packet, "client") && (trusted || control.multiuser || !getuid())) {
		hand_over(&connection[at], pid, uid);
		close_connection(at);
	} else if (trusted && !strcmp(packet, "ui")) {
		log_line("NEW UI");
		connection[at].ui = true;
		post(fd, -1, "ok %d", control.protocol);
	} else {
		log_line("User did not send valid credentials");
		close_connection(at);
	}
}

/* quit begins the end: no new clients, and servers end after their last one. */
static void quit(int fd, const char *line)
{
	char end;
	unsigned seconds;
	int count = sscanf(line, "quit -t %u %c", &seconds, &end);

	if (strcmp(line, "quit") && count != 1) {
		post(fd, -1, "Invalid arguments: %s", line);
		return;
	}
	control.quitting = true;
	control.quit = fd;
	control.deadline = count == 1 ? now_ms() + seconds * 1000LL : 0;
	for (unsigned i = 0; i < SERVERS; i++)
		if (control.server[i].pid)
			post(control.server[i].fd, -1, "shutdown");
}

static void serve(unsigned at)
{
	char packet[PACKET], answer[PACKET] = "";
	int fd = connection[at].fd;

	if (!fetch(fd, packet, NULL)) {
		close_connection(at);
		return;
	}
	if (!connection[at].ui) {
		greet(at, packet);
		return;
	}
	log_line("Cmd:%s", packet);
	if (!strcmp(packet, "quit") || !strncmp(packet, "quit ", 5)) {
		quit(fd, packet);
		return;
	}
	if (control.protocol == 3)
		command_of_module(packet, answer, sizeof answer);
	else
		command(packet, answer, sizeof answer);
	if (*answer)
		log_line("%.*s", (int)(strlen(answer) - (answer[strlen(answer) - 1] == '\n')), answer);
	post(fd, -1, "%s", answer);
}

/* end_in_time forces the end once the timeout of quit -t has passed, and ends when no server is
 * left. */
static void end_in_time(void)
{
	if (!control.quitting)
		return;
	if (control.deadline && now_ms() >= control.deadline) {
		control.deadline = 0;
		for (unsigned i = 0; i < SERVERS; i++)
			if (control.server[i].pid)
				post(control.server[i].fd, -1, "terminate 0");
	}
	if (!serving())
		finish(0);
}

static int watch_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static void accept_from(int listener, struct server *server, struct namespace *space)
{
	log_line("Accepting connection...");
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		connection[connections++] = (struct connection){fd, false, server, space};
}

/* accept_all accepts one connection of each socket of a server. */
static void accept_all(void)
{
	for (unsigned i = 0; i < SERVERS * (NAMESPACES + 1) && connections < CONNECTIONS; i++) {
		struct server *server = &control.server[i / (NAMESPACES + 1)];
		struct namespace *space = &server->space[i % (NAMESPACES + 1)];
		bool own = i % (NAMESPACES + 1) == NAMESPACES; /* the server's, of the default namespace */
		int listener = !server->pid ? -1 : own ? server->listener : *space->name ? space->listener : -1;
		struct pollfd wait = {.fd = listener, .events = POLLIN};

		if (listener >= 0 && control.protocol == 3 && poll(&wait, 1, 0) > 0 && wait.revents)
			accept_from(listener, server, own ? &server->space[0] : space);
	}
}

/* add_sockets appends those of the servers to what the daemon waits for, and returns their number. */
static unsigned add_sockets(struct pollfd *waits)
{
	unsigned count = 0;

	for (unsigned i = 0; control.protocol == 3 && i < SERVERS; i++) {
		struct server *server = &control.server[i];
		if (!server->pid)
			continue;
		waits[count++] = (struct pollfd){.fd = server->listener, .events = POLLIN};
		for (unsigned n = 0; n < NAMESPACES; n++)
			if (*server->space[n].name)
				waits[count++] = (struct pollfd){.fd = server->space[n].listener, .events = POLLIN};
	}
	return count;
}

static void loop(int listener, int signals)
{
	for (;;) {
		struct pollfd waits[2 + SERVERS + CONNECTIONS + SERVERS * (NAMESPACES + 1)];
		unsigned known = connections;
		waits[0] = (struct pollfd){.fd = listener, .events = known < CONNECTIONS ? POLLIN : 0};
		waits[1] = (struct pollfd){.fd = signals, .events = POLLIN};
		for (unsigned i = 0; i < SERVERS; i++)
			waits[2 + i] = (struct pollfd){.fd = control.server[i].pid ? control.server[i].fd : -1, .events = POLLIN};
		for (unsigned i = 0; i < known; i++)
			waits[2 + SERVERS + i] = (struct pollfd){.fd = connection[i].fd, .events = POLLIN};
		unsigned sockets = known < CONNECTIONS ? add_sockets(waits + 2 + SERVERS + known) : 0;
		poll(waits, 2 + SERVERS + known + sockets, control.deadline ? 100 : -1);
		if (waits[1].revents)
			finish(1);
		for (unsigned i = 0; i < SERVERS; i++)
			if (waits[2 + i].revents)
				receive(&control.server[i]);
		for (unsigned i = known; i-- > 0;)
			if (waits[2 + SERVERS + i].revents)
				serve(i);
		if (waits[0].revents)
			accept_from(listener, NULL, NULL);
		accept_all();
		end_in_time();
	}
}

void run_daemon(int ready)
{
	char path[PATH_MAX];

	if (pipe_path(path, "")) {
		path[strlen(path) - 1] = 0;
		mkdir(path, 0755);
	}
	claim();
	log_open("control.log", "Control", control.loud);
	int listener = listen_at("");
	if (listener < 0) {
		puts("Cannot find MPS control daemon process");
		exit(1);
	}
	if (pipe_path(path, "control"))
		log_line("Starting control daemon using socket %s", path);
	log_line("CUDA MPS Control binary version: 13000");
	read_limits();
	int signals = watch_signals();
	if (ready >= 0) {
		int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
		for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
			dup2(nothing, fd);
		if (write(ready, "", 1) != 1)
			exit(1);
		close(ready);
	}
	loop(listener, signals);
}
