/* The commands of nvidia-cuda-mps-control(1), except quit. */
#define _GNU_SOURCE
#include "control.h"

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
		reply(r, "Server %s not found", r->word[word]);
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

static bool device_named(struct request *r, int word, unsigned *device)
{
	bool found = visible_device(r->word[word], device);

	if (!found)
		reply(r, "Invalid device %s", r->word[word]);
	return found;
}

/* reply_memory writes a limit as the daemon does: from a gibibyte on, the rest below a gibibyte is
 * not shown. */
static void reply_memory(struct request *r, uint64_t bytes)
{
	if (!bytes)
		reply(r, "No limit");
	else if (bytes >> 30)
		reply(r, "%lluG", (unsigned long long)bytes >> 30);
	else
		reply(r, "%lluM", (unsigned long long)bytes >> 20);
}

static void set_default_percentage(struct request *r)
{
	double percentage;

	if (!parse_percentage(r->word[1], &percentage)) {
		reply(r, "Invalid percentage %s", r->word[1]);
		return;
	}
	control.percentage = percentage;
	reply(r, "%.1f", percentage);
}

static void get_default_percentage(struct request *r) { reply(r, "%.1f", control.percentage); }

static void set_percentage(struct request *r)
{
	struct server *server = server_named(r, 1);
	double percentage;

	if (!server)
		return;
	if (!parse_percentage(r->word[2], &percentage)) {
		reply(r, "Invalid percentage %s", r->word[2]);
		return;
	}
	server->percentage = percentage;
	post(server->fd, -1, "percentage %g", percentage);
	reply(r, "%.1f", percentage);
}

static void get_percentage(struct request *r)
{
	struct server *server = server_named(r, 1);

	if (server)
		reply(r, "%.1f", server->percentage);
}

static void set_default_memory(struct request *r)
{
	unsigned device;
	uint64_t bytes;

	if (!device_named(r, 1, &device))
		return;
	if (parse_memory(r->word[2], &bytes))
		control.memory[device] = bytes;
	else
		reply(r, "Invalid memory limit %s", r->word[2]);
}

static void get_default_memory(struct request *r)
{
	unsigned device;

	if (device_named(r, 1, &device))
		reply_memory(r, control.memory[device]);
}

static void set_memory(struct request *r)
{
	struct server *server = server_named(r, 1);
	unsigned device;
	uint64_t bytes;

	if (!server || !device_named(r, 2, &device))
		return;
	if (!parse_memory(r->word[3], &bytes)) {
		reply(r, "Invalid memory limit %s", r->word[3]);
		return;
	}
	server->memory[device] = bytes;
	post(server->fd, -1, "memory %u %llu", device, (unsigned long long)bytes);
}

static void get_memory(struct request *r)
{
	struct server *server = server_named(r, 1);
	unsigned device;

	if (server && device_named(r, 2, &device))
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
	unsigned long uid = strtoul(r->word[2], &end, 10);

	if (strcmp(r->word[1], "-uid") || *end || !*r->word[2]) {
		reply(r, "Invalid arguments: start_server %s %s", r->word[1], r->word[2]);
		return;
	}
	if (serving() || (control.multiuser && uid != 0)) {
		reply(r, "Cannot start a server for user %lu", uid);
		return;
	}
	if (!start_server(uid))
		reply(r, "Failed to start a server for user %lu", uid);
}

static void shutdown_one(struct request *r)
{
	struct server *server = server_named(r, 1);
	bool force = r->count == 3 && !strcmp(r->word[2], "-f");

	if (r->count == 3 && !force)
		reply(r, "Invalid arguments: shutdown_server %s %s", r->word[1], r->word[2]);
	else if (server) {
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
			return;
		}
	if (server)
		reply(r, "Client %s not found", r->word[2]);
}

static void ps(struct request *r)
{
	reply(r, "%-9s %-9s %-9s %s\n", "PID", "ID", "SERVER", "COMMAND");
	for (unsigned i = 0; i < SERVERS; i++)
		for (unsigned c = 0; c < control.server[i].clients; c++) {
			char path[64], name[64] = "?";
			snprintf(path, sizeof path, "/proc/%d/comm", control.server[i].client[c]);
			FILE *file = fopen(path, "re");
			if (file && fgets(name, sizeof name, file))
				name[strcspn(name, "\n")] = 0;
			if (file)
				fclose(file);
			reply(r, "%-9d %-9u %-9d %s\n", control.server[i].client[c], c + 1, control.server[i].pid, name);
		}
}

static const struct {
	const char *name;
	int least, most; /* words after the name */
	void (*run)(struct request *);
} commands[] = {
	{"set_default_active_thread_percentage", 1, 1, set_default_percentage},
	{"get_default_active_thread_percentage", 0, 0, get_default_percentage},
	{"set_active_thread_percentage", 2, 2, set_percentage},
	{"get_active_thread_percentage", 1, 1, get_percentage},
	{"set_default_device_pinned_mem_limit", 2, 2, set_default_memory},
	{"get_default_device_pinned_mem_limit", 1, 1, get_default_memory},
	{"set_device_pinned_mem_limit", 3, 3, set_memory},
	{"get_device_pinned_mem_limit", 2, 2, get_memory},
	{"get_server_list", 0, 0, get_servers},
	{"get_server_status", 1, 1, get_status},
	{"get_client_list", 1, 1, get_clients},
	{"start_server", 2, 2, start},
	{"shutdown_server", 1, 2, shutdown_one},
	{"terminate_client", 2, 2, terminate_one},
	{"ps", 0, 0, ps},
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
		if (r.count - 1 < commands[i].least || r.count - 1 > commands[i].most)
			reply(&r, "Invalid arguments: %s", line);
		else
			commands[i].run(&r);
		free(copy);
		return;
	}
	reply(&r, "Invalid command: %s", line);
	free(copy);
}
