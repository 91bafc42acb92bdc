/* The control daemon: its servers, and the commands from the command line. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mps/log.h"
#include "mps/wire.h"

enum { SERVERS = 8, NAMESPACES = 64, NAME = 65, CLIENTS_KNOWN = SERVERS * MPS_CLIENTS };

/* A namespace of a server (version 3): its limits, and the socket whose clients get them. */
struct namespace {
	char name[NAME]; /* empty: this entry is free */
	int listener;
	double percentage; /* 0: none, like the other limits */
	uint64_t memory;
};

struct server {
	pid_t pid; /* 0: this entry is free */
	char name[NAME], allowed[2048]; /* version 3 */
	int listener; /* of clients of the default namespace */
	struct namespace space[NAMESPACES]; /* the first one is the default */
	uid_t uid;
	int fd;
	char shared[64]; /* its file in shared memory */
	double percentage;
	uint64_t memory[MPS_DEVICES];
	unsigned clients;
	pid_t client[MPS_CLIENTS];
	struct namespace *in[MPS_CLIENTS]; /* the namespaces of the clients; NULL in version 2 */
};

extern struct control {
	bool multiuser, loud, quitting;
	int protocol; /* the version of MPS */
	double percentage; /* of servers that are not started yet */
	uint64_t memory[MPS_DEVICES];
	uint64_t named[MPS_DEVICES]; /* limits that were set by UUID, which servers do not use */
	struct server server[SERVERS];
	int quit; /* the connection that waits for the end; -1 */
	int64_t deadline; /* of quit -t, in milliseconds of CLOCK_MONOTONIC; 0 for none */
} control;

/* run_daemon is the daemon; it never returns. It writes to ready when it listens; -1 for none. */
void run_daemon(int ready);

/* command_line sends the lines of standard input to the daemon. */
int command_line(void);

/* command executes a line and writes the answer. */
void command(const char *line, char *answer, size_t size);

/* command_of_module executes a command of version 3, whose words are separated by tabs. The first character of the answer is 0, or 1 for an error. */
void command_of_module(const char *line, char *answer, size_t size);

/* open_server and close_server make and remove the sockets of a server of version 3. */
bool open_server(struct server *server);
void close_server(struct server *server);

/* listen_at opens the socket "control" in a folder below the pipe folder, and the folder; "" is the pipe folder. */
int listen_at(const char *folder);

/* find_server finds one by process ID; NULL if there is none. */
struct server *find_server(pid_t pid);
/* start_server starts one for a user, in version 3 with a name and the devices that it may use; NULL when that fails. */
struct server *start_server(uid_t uid, const char *name, const char *allowed);
/* server_for returns the server of a client of that user and starts it if necessary; NULL with the
 * code of CUDA. */
struct server *server_for(uid_t uid, int *code);
/* receive reads a server's messages; it reaps a server that has ended. */
void receive(struct server *server);
/* reap waits for a server that has ended. */
void reap(struct server *server);
bool serving(void);

/* visible_device finds a device of CUDA_VISIBLE_DEVICES by number or UUID; false when it is not there. */
bool visible_device(const char *name, unsigned *number);
