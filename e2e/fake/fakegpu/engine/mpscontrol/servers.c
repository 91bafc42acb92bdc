/* The servers: one for each user, started at the first client. */
#define _GNU_SOURCE
#include "control.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

bool serving(void)
{
	for (unsigned i = 0; i < SERVERS; i++)
		if (control.server[i].pid)
			return true;
	return false;
}

struct server *find_server(pid_t pid)
{
	for (unsigned i = 0; i < SERVERS; i++)
		if (pid > 0 && control.server[i].pid == pid)
			return &control.server[i];
	return NULL;
}

void reap(struct server *server)
{
	int status = 0;

	waitpid(server->pid, &status, 0);
	if (*server->shared)
		unlink(server->shared);
	if (control.protocol == 3)
		close_server(server);
	if (WIFSIGNALED(status))
		log_line("Server %d was ended by signal %d", server->pid, WTERMSIG(status));
	else
		log_line("Server %d exited with status %d", server->pid, WEXITSTATUS(status));
	close(server->fd);
	*server = (struct server){0};
}

void receive(struct server *server)
{
	char packet[PACKET];
	int pid;

	if (!fetch(server->fd, packet, NULL)) {
		reap(server);
		return;
	}
	if (sscanf(packet, "gone %d", &pid) != 1)
		return;
	for (unsigned i = 0; i < server->clients; i++)
		if (server->client[i] == pid) {
			server->client[i] = server->client[--server->clients];
			server->in[i] = server->in[server->clients];
			return;
		}
}

/* become starts the server's program in this new process. */
static void become(uid_t uid, const char *allowed, int fd)
{
	char program[PATH_MAX], number[16], percentage[32], limits[PACKET] = "-";
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 64);
	size_t used = 0;

	if (length < 0)
		_exit(1);
	program[length] = 0;
	strcpy(strrchr(program, '/'), "/nvidia-cuda-mps-server");
	snprintf(number, sizeof number, "%d", fd);
	snprintf(percentage, sizeof percentage, "%g", control.percentage);
	for (unsigned i = 0; i < MPS_DEVICES; i++)
		if (control.memory[i])
			used += snprintf(limits + used, sizeof limits - used, "%s%u=%lluM", used ? "," : "", i,
					 (unsigned long long)control.memory[i] >> 20);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (uid != getuid() && setuid(uid))
		_exit(1);
	if (allowed && *allowed)
		setenv("CUDA_VISIBLE_DEVICES", allowed, 1);
	fcntl(fd, F_SETFD, 0);
	execl(program, program, number, percentage, limits, control.loud ? "loud" : NULL, NULL);
	_exit(127);
}

struct server *start_server(uid_t uid, const char *name, const char *allowed)
{
	struct server *server = NULL;
	char packet[PACKET];
	int pair[2];

	for (unsigned i = 0; i < SERVERS && !server; i++)
		if (!control.server[i].pid)
			server = &control.server[i];
	if (!server || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return NULL;
	*server = (struct server){.uid = uid, .fd = pair[0], .listener = -1, .percentage = control.percentage};
	snprintf(server->name, sizeof server->name, "%s", name ? name : "");
	snprintf(server->allowed, sizeof server->allowed, "%s", allowed ? allowed : "");
	memcpy(server->memory, control.memory, sizeof server->memory);
	server->pid = fork();
	if (!server->pid)
		become(uid, allowed, pair[1]);
	close(pair[1]);
	if (server->pid < 0) {
		close(pair[0]);
		*server = (struct server){0};
		return NULL;
	}
	log_line("Starting new server %d for user %u", server->pid, uid);
	if (!fetch(server->fd, packet, NULL) || sscanf(packet, "ready %63s", server->shared) != 1) {
		log_line("Server encountered a fatal exception. Shutting down");
		reap(server);
		return NULL;
	}
	log_line("NEW SERVER %d: Ready", server->pid);
	return server;
}

/* A server serves one user, unless the daemon serves several users; one without clients ends to make
 * room for another user's. */
struct server *server_for(uid_t uid, int *code)
{
	uid_t wanted = control.multiuser ? getuid() : uid;

	for (unsigned i = 0; i < SERVERS; i++) {
		struct server *server = &control.server[i];
		if (!server->pid)
			continue;
		if (server->uid == wanted)
			return server;
		if (server->clients) {
			log_line("NEW CLIENT from user %u: Server is not ready", uid);
			*code = MPS_SERVER_NOT_READY;
			return NULL;
		}
		kill(server->pid, SIGTERM);
		reap(server);
	}
	*code = MPS_CONNECTION_FAILED;
	return start_server(wanted, NULL, NULL);
}
