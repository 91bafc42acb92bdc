/*
 * The protocol of the parts of MPS: clients and the command line to the control daemon, the control daemon to
 * its servers, and a server to its clients once the control daemon has handed a connection over. Every message
 * is one packet of text. NVIDIA's protocol is not public; only its effects are modeled.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PACKET = 16384 /* a list of all namespaces */, MPS_DEVICES = 32, MPS_CLIENTS = 48 };

/* The answers of CUDA that a server gives (CUresult). */
enum {
	MPS_OUT_OF_MEMORY = 2,
	MPS_CONNECTION_FAILED = 805,
	MPS_RPC_FAILURE = 806,
	MPS_SERVER_NOT_READY = 807,
	MPS_MAX_CLIENTS_REACHED = 808,
	MPS_CLIENT_TERMINATED = 810,
};

/* pipe_path writes the path of a file in CUDA_MPS_PIPE_DIRECTORY; false when it is too long for a socket. */
bool pipe_path(char *path, const char *name);

/* dial connects to the control daemon; -1 when there is none. */
int dial(void);

/* post sends a packet, and with it a descriptor unless that is -1; false when the other end is gone. */
bool post(int fd, int descriptor, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* fetch receives a packet and the descriptor in it, if any and if wanted; false at the end. */
bool fetch(int fd, char *packet, int *descriptor);

/* peer returns the credentials of the other end. */
bool peer(int fd, pid_t *pid, uid_t *uid);

/*
 * Limits. A percentage is above 0 and at most 100; 0 is none. A memory limit is an integer, in GiB if G follows and in MiB if anything else or nothing does,
 * and in the environment a list of them by device: "0=4G,GPU-…=512M".
 */
bool parse_percentage(const char *text, double *percentage);
uint64_t parse_memory(const char *text);
/* memory_limit finds the limit of a device, by number or the beginning of its UUID, in such a list; 0 for none. */
uint64_t memory_limit(const char *list, unsigned number, const char *uuid);
