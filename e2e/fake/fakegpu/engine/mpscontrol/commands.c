/* The commands of nvidia-cuda-mps-control(1), except quit. */
#define _GNU_SOURCE
#include "control.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 6 };

/* The words of a command, and the destination of its answer. */
struct request {
	int count;
	char *word[WORDS];
	char *answer;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void reply(struct request *r, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	r->used += vsnprintf(r->answer + r->used, r->size - r->used, format, values);
	va_end(values);
	if (r->used >= r->size)
		r->used = r->size - 1;
}

/* server_named finds the server of a word; without one it replies with an error. */
static struct server *server_named(struct request *r, int word)
{
	char *end;
	long pid = strtol(r->word[word], &end, 10);
	struct server *server = *end ? NULL : find_server(pid);

	if (!server)
		reply(r, "Server %ld not found", pid);
	return server;
}

bool visible_device(const char *name, unsigned *number)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char *end, *copy = strdup(visible ? visible : ""), *rest = copy, *one;
	unsigned count = 0, index = strtoul(name, &end, 10);
	bool numbered = end != name && !*end, found = !visible && numbered && index < MPS_DEVICES;

	while (visible && (one = strsep(&rest, ","))) {
		if (!found && (numbered ? index == count : !strcmp(one, name) || (*one && !strncmp(name, one, strlen(one))))) {
			found = true;
			index = count;
		}
		count++;
	}
	free(copy);
	*number = index;
	return found && index < MPS_DEVICES;
}

/* reply_memory writes a limit as the daemon does: nothing without one, and from a gibibyte on, the rest below a gibibyte
 * is not shown. */
static void reply_memory(struct request *r, uint64_t bytes)
{
	if (bytes >> 30)
		reply(r, "%lluG", (unsigned long long)bytes >> 30);
	else if (bytes)
		reply(r, "%lluM", (unsigned long long)bytes >> 20);
}

static void set_default_percentage(struct request *r)
{
	double percentage;

	/* Refusals are in the log only; the answer is the value in effect. */
	if (parse_percentage(r->word[1], &percentage))
		control.percentage = percentage;
	else
		log_line("Invalid percentage, expected between (0.0, 100.0]");
	reply(r, "%.1f", control.percentage);
}

static void get_default_percentage(struct request *r) { reply(r, "%.1f", control.percentage); }

static void set_percentage(struct request *r)
{
	struct server *server = server_named(r, 1);
	double percentage;

	if (!server)
		return;
	if (parse_percentage(r->word[2], &percentage)) {
		server->percentage = percentage;
		post(server->fd, -1, "percentage %g", percentage);
	} else
		log_line("Invalid percentage, expected between (0.0, 100.0]");
	reply(r, "%.1f", server->percentage);
}

static void get_percentage(struct request *r)
{
	struct server *server = server_named(r, 1);

	if (server)
		reply(r, "%.1f", server->percentage);
}

/* default_memory finds where the default limit of a device is kept: those by UUID are apart from those by position. */
static uint64_t *default_memory(const char *name)
{
	unsigned device;

	if (!visible_device(name, &device))
		return NULL;
	return isdigit((unsigned char)*name) ? &control.memory[device] : &control.named[device];
}

/* A limit of a device that does not exist is accepted without a word. */
static void set_default_memory(struct request *r)
{
	uint64_t *limit = default_memory(r->word[1]);

	if (limit)
		*limit = parse_memory(r->word[2]);
	else
		log_line("Invalid device identifier format: %s", r->word[1]);
}

static void get_default_memory(struct request *r)
{
	uint64_t *limit = default_memory(r->word[1]);

	if (limit)
		reply_memory(r, *limit);
}

static void set_memory(struct request *r)
{
	struct server *server = server_named(r, 1);
	unsigned device;

	if (!server || !visible_device(r->word[2], &device))
		return;
	server->memory[device] = parse_memory(r->word[3]);
	post(server->fd, -1, "memory %u %llu", device, (unsigned long long)server->memory[device]);
}

static void get_memory(struct request *r)
{
	struct server *server = server_named(r, 1);
	unsigned device;

	if (server && visible_device(r->word[2], &device))
		reply_memory(r, server->memory[device]);
}

static void get_servers(struct request *r)
{
	for (unsigned i = 0; i < SERVERS; i++)
		if (control.server[i].pid)
			reply(r, "%d\n", control.server[i].pid);
}

static void get_status(struct request *r)
{
	if (server_named(r, 1))
		reply(r, "ACTIVE");
}

static void get_clients(struct request *r)
{
	struct server *server = server_named(r, 1);

	for (unsigned i = 0; server && i < server->clients; i++)
		reply(r, "%d\n", server->client[i]);
}

static void start(struct request *r)
{
	char *end;
	unsigned long uid = r->count < 3 ? 0 : strtoul(r->word[2], &end, 10);

	if (r->count < 3 || strcmp(r->word[1], "-uid") || *end || !*r->word[2]) {
		reply(r, "A user id (UID) is required to start a new server");
		return;
	}
	/* What becomes of it is in the log only. */
	if (!serving() && (!control.multiuser || uid == 0))
		start_server(uid, NULL, NULL);
}

static void shutdown_one(struct request *r)
{
	struct server *server = server_named(r, 1);
	bool force = r->count == 3 && !strcmp(r->word[2], "-f");

	if (server) {
		post(server->fd, -1, "shutdown");
		if (force)
			post(server->fd, -1, "terminate 0");
	}
}

static void terminate_one(struct request *r)
{
	struct server *server = server_named(r, 1);
	int pid = atoi(r->word[2]);

	for (unsigned i = 0; server && i < server->clients; i++)
		if (server->client[i] == pid) {
			post(server->fd, -1, "terminate %d", pid);
			reply(r, "0");
			return;
		}
	if (server)
		reply(r, "201"); /* CUDA_ERROR_INVALID_CONTEXT */
}

static void ps(struct request *r)
{
	bool any = false;

	for (unsigned i = 0; i < SERVERS; i++)
		for (unsigned c = 0; c < control.server[i].clients; c++) {
			char path[64], name[64] = "?";
			snprintf(path, sizeof path, "/proc/%d/comm", control.server[i].client[c]);
			FILE *file = fopen(path, "re");
			if (file && fgets(name, sizeof name, file))
				name[strcspn(name, "\n")] = 0;
			if (file)
				fclose(file);
			if (!any)
				reply(r, "%-9s %-9s %-14s %-25s %-14s %-15s\n", "PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND");
			any = true;
			reply(r, "%-9d %-9u %-14d %-25s %-14s %-15s\n", control.server[i].client[c], c + 1, control.server[i].pid, "?", "?", name);
		}
}

static const struct {
	const char *name;
	int least; /* words after the name; more are ignored */
	void (*run)(struct request *);
} commands[] = {
	{"set_default_active_thread_percentage", 1, set_default_percentage},
	{"get_default_active_thread_percentage", 0, get_default_percentage},
	{"set_active_thread_percentage", 2, set_percentage},
	{"get_active_thread_percentage", 1, get_percentage},
	{"set_default_device_pinned_mem_limit", 2, set_default_memory},
	{"get_default_device_pinned_mem_limit", 1, get_default_memory},
	{"set_device_pinned_mem_limit", 3, set_memory},
	{"get_device_pinned_mem_limit", 2, get_memory},
	{"get_server_list", 0, get_servers},
	{"get_server_status", 1, get_status},
	{"get_client_list", 1, get_clients},
	{"start_server", 0, start},
	{"shutdown_server", 1, shutdown_one},
	{"terminate_client", 2, terminate_one},
	{"ps", 0, ps},
};

void command(const char *line, char *answer, size_t size)
{
	char *copy = strdup(line), *rest = copy, *word;
	struct request r = {.answer = answer, .size = size};

	while ((word = strsep(&rest, " \t")) && r.count < WORDS)
		if (*word)
			r.word[r.count++] = word;
	for (size_t i = 0; r.count && i < sizeof commands / sizeof *commands; i++) {
		if (strcmp(commands[i].name, r.word[0]))
			continue;
		if (r.count - 1 < commands[i].least)
			reply(&r, "A server PID is required");
		else
			commands[i].run(&r);
		free(copy);
		return;
	}
	reply(&r, "Unknown command \"%s\"", r.count ? r.word[0] : "");
	free(copy);
}
