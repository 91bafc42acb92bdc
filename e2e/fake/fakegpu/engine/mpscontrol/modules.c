/*
 * The commands of MPS version 3, a module and a verb with arguments, and the sockets of servers and namespaces. Source: NVIDIA Multi-Process Service, release
 * 615, MPS v3 Interface and MPS v3 Namespaces. The texts of refusals are not NVIDIA's.
 */
#define _GNU_SOURCE
#include "control.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 16 };

/* A command: the words without options, the options, and the destination of the answer. */
struct order {
	int words, options;
	char *word[WORDS], *option[WORDS];
	char *answer;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void reply(struct order *o, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	o->used += vsnprintf(o->answer + o->used, o->size - o->used, format, values);
	va_end(values);
	if (o->used >= o->size)
		o->used = o->size - 1;
}

/* refuse replaces the answer with an error. */
__attribute__((format(printf, 2, 3))) static void refuse(struct order *o, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	*o->answer = '1';
	vsnprintf(o->answer + 1, o->size - 1, format, values);
	va_end(values);
}

/* option returns the value of an option, empty for one without a value, or NULL, and removes it. */
static const char *option(struct order *o, const char *name)
{
	size_t length = strlen(name);

	for (int i = 0; i < o->options; i++) {
		char *value = o->option[i];
		if (strncmp(value, name, length) || (value[length] && value[length] != '='))
			continue;
		o->option[i] = o->option[--o->options];
		return value[length] ? value + length + 1 : "";
	}
	return NULL;
}

/* complete refuses a command with other options, or another number of words than a module, a verb and so many. */
static bool complete(struct order *o, int words)
{
	if (o->options)
		refuse(o, "unknown option '--%s'", o->option[0]);
	else if (o->words != words + 2)
		refuse(o, "%s %s: wrong number of arguments", o->word[0], o->word[1]);
	else
		return true;
	return false;
}

static bool valid_name(const char *name)
{
	return *name && strlen(name) < NAME && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

static struct server *server_called(struct order *o, const char *name)
{
	for (unsigned i = 0; name && i < SERVERS; i++)
		if (control.server[i].pid && !strcmp(control.server[i].name, name))
			return &control.server[i];
	refuse(o, "server '%s' does not exist", name ? name : "");
	return NULL;
}

static struct namespace *space_called(struct server *server, const char *name)
{
	for (unsigned i = 0; i < NAMESPACES; i++)
		if (*server->space[i].name && !strcmp(server->space[i].name, name))
			return &server->space[i];
	return NULL;
}

static void folder_of(const struct server *server, const struct namespace *space, char *folder, size_t size)
{
	snprintf(folder, size, "%s%s%s", server->name, space ? "/" : "", space ? space->name : "");
}

static void close_at(const struct server *server, const struct namespace *space, int listener)
{
	char folder[PATH_MAX], name[PATH_MAX + 16], path[PATH_MAX];

	folder_of(server, space, folder, sizeof folder);
	snprintf(name, sizeof name, "%s/control", folder);
	close(listener);
	if (pipe_path(path, name))
		unlink(path);
	if (pipe_path(path, folder))
		rmdir(path);
}

static bool open_space(struct server *server, const char *name)
{
	char folder[PATH_MAX];

	for (unsigned i = 0; i < NAMESPACES; i++) {
		struct namespace *space = &server->space[i];
		if (*space->name)
			continue;
		*space = (struct namespace){0};
		snprintf(space->name, sizeof space->name, "%s", name);
		folder_of(server, space, folder, sizeof folder);
		space->listener = listen_at(folder);
		if (space->listener < 0)
			*space = (struct namespace){0};
		return *space->name;
	}
	return false;
}

bool open_server(struct server *server)
{
	server->listener = listen_at(server->name);
	return server->listener >= 0 && open_space(server, "default");
}

void close_server(struct server *server)
{
	if (server->listener < 0)
		return;
	for (unsigned i = 0; i < NAMESPACES; i++)
		if (*server->space[i].name)
			close_at(server, &server->space[i], server->space[i].listener);
	close_at(server, NULL, server->listener);
}

static void create_server(struct order *o)
{
	const char *uid = option(o, "uid"), *allowed = option(o, "allowed-devices");
	char *end = "";
	unsigned long user = uid ? strtoul(uid, &end, 10) : getuid();

	if (!complete(o, 1))
		return;
	if (!valid_name(o->word[2]) || *end)
		refuse(o, "invalid name '%s' or uid", o->word[2]);
	else if (control.multiuser && user)
		refuse(o, "only uid 0 is allowed in multiuser mode");
	else {
		for (unsigned i = 0; i < SERVERS; i++)
			if (control.server[i].pid && !strcmp(control.server[i].name, o->word[2])) {
				refuse(o, "server '%s' already exists", o->word[2]);
				return;
			}
		/* One that cannot start, as with a device that does not exist, ends: it was accepted, and is not listed. */
		struct server *server = start_server(user, o->word[2], allowed);
		if (server && !open_server(server))
			refuse(o, "cannot open the sockets of server '%s'", o->word[2]);
	}
}

static void delete_server(struct order *o)
{
	bool force = option(o, "force");
	struct server *server = complete(o, 1) ? server_called(o, o->word[2]) : NULL;

	if (!server)
		return;
	if (server->clients && !force)
		refuse(o, "server '%s' has active clients", o->word[2]);
	else {
		post(server->fd, -1, "terminate 0");
		post(server->fd, -1, "shutdown");
	}
}

/* list_start begins a table of a module and reports whether it is CSV. */
static void list_start(struct order *o, const char *format, const char *header)
{
	if (format && !strstr(format, "noheader"))
		reply(o, "%s\n", header);
	else if (!format)
		reply(o, "%s\n", header); /* a table has other spaces */
}

static void list_servers(struct order *o)
{
	const char *format = option(o, "format");
	char path[PATH_MAX];

	if (!complete(o, o->words > 2 ? 1 : 0) || (o->words > 2 && !server_called(o, o->word[2])))
		return;
	list_start(o, format, "name,uid,pid,status,pipe-directory,allowed-devices,context-ids");
	for (unsigned i = 0; i < SERVERS; i++) {
		struct server *server = &control.server[i];
		if (!server->pid || (o->words > 2 && strcmp(server->name, o->word[2])) || !pipe_path(path, server->name))
			continue;
		reply(o, "%s,%u,%d,Ready,%s,%s,-\n", server->name, server->uid, server->pid, path, *server->allowed ? server->allowed : "all");
	}
}

/* set_limits applies the options of a command to a namespace; clients that are connected keep their limits. */
static void set_limits(struct order *o, struct namespace *space, int words)
{
	const char *percentage = option(o, "active-thread-percentage"), *memory = option(o, "pinned-memory-limit");
	double value = space->percentage;
	char *end = "";
	uint64_t bytes = memory ? strtoull(memory, &end, 10) : space->memory;

	if (!complete(o, words))
		return;
	if (!percentage && !memory)
		refuse(o, "at least one option is required");
	else if (percentage && (!parse_percentage(percentage, &value) || value < 1))
		refuse(o, "invalid percentage '%s'", percentage);
	else if (memory && (end == memory || !strchr("KMG", *end) || !*end || end[1]))
		refuse(o, "invalid limit '%s'", memory);
	else {
		space->percentage = value;
		space->memory = memory ? bytes << (*end == 'G' ? 30 : *end == 'M' ? 20 : 10) : bytes;
	}
}

static void set_server(struct order *o)
{
	struct server *server = server_called(o, o->word[2]);

	if (server)
		set_limits(o, &server->space[0], 1);
}

static void get_server(struct order *o)
{
	struct server *server = complete(o, 2) ? server_called(o, o->word[2]) : NULL;
	char path[PATH_MAX];

	if (!server || !pipe_path(path, server->name))
		return;
	if (!strcmp(o->word[3], "status"))
		reply(o, "Ready\n");
	else if (!strcmp(o->word[3], "pid"))
		reply(o, "%d\n", server->pid);
	else if (!strcmp(o->word[3], "pipe-directory"))
		reply(o, "%s\n", path);
	else if (!strcmp(o->word[3], "allowed-devices"))
		reply(o, "%s\n", server->allowed);
	else
		refuse(o, "unknown field '%s'", o->word[3]);
}

static void create_space(struct order *o)
{
	const char *name = option(o, "server");
	struct server *server = complete(o, 1) ? server_called(o, name) : NULL;

	if (!server)
		return;
	if (!valid_name(o->word[2]))
		refuse(o, "invalid name '%s'", o->word[2]);
	else if (space_called(server, o->word[2]))
		refuse(o, "namespace '%s' already exists", o->word[2]);
	else if (!open_space(server, o->word[2]))
		refuse(o, "cannot open the socket of namespace '%s'", o->word[2]);
}

static void delete_space(struct order *o)
{
	const char *name = option(o, "server");
	bool force = option(o, "force");
	struct server *server = complete(o, 1) ? server_called(o, name) : NULL;
	struct namespace *space = server ? space_called(server, o->word[2]) : NULL;

	if (!server)
		return;
	if (!space || space == &server->space[0]) {
		refuse(o, "namespace '%s' does not exist or is the default", o->word[2]);
		return;
	}
	for (unsigned i = 0; i < server->clients; i++)
		if (server->in[i] == space) {
			if (!force) {
				refuse(o, "namespace '%s' has active clients", o->word[2]);
				return;
			}
			post(server->fd, -1, "terminate %d", server->client[i]);
			server->in[i] = NULL;
		}
	close_at(server, space, space->listener);
	*space = (struct namespace){0};
}

/* show_memory writes a limit as version 2 does, without the rest below a gibibyte. */
static void show_memory(struct order *o, uint64_t bytes)
{
	if (bytes >> 30)
		reply(o, "%lluG", (unsigned long long)bytes >> 30);
	else if (bytes)
		reply(o, "%lluM", (unsigned long long)bytes >> 20);
	else
		reply(o, "-");
}

static void list_spaces(struct order *o)
{
	const char *format = option(o, "format"), *name = option(o, "server");
	char path[PATH_MAX], folder[PATH_MAX];

	if (!complete(o, 0) || (name && !server_called(o, name)))
		return;
	list_start(o, format, "name,server,server-status,pinned-memory-limit,active-thread-percentage,client-priority,pipe-directory");
	for (unsigned i = 0; i < SERVERS * NAMESPACES; i++) {
		struct server *server = &control.server[i / NAMESPACES];
		struct namespace *space = &server->space[i % NAMESPACES];
		if (!server->pid || !*space->name || (name && strcmp(name, server->name)))
			continue;
		folder_of(server, space, folder, sizeof folder);
		reply(o, "%s,%s,Ready,", space->name, server->name);
		show_memory(o, space->memory);
		reply(o, ",%.2f,0,%s\n", space->percentage ? space->percentage : 100, pipe_path(path, folder) ? path : "");
	}
}

static void set_space(struct order *o)
{
	const char *name = option(o, "server");
	struct server *server = server_called(o, name);
	struct namespace *space = server && o->word[2] ? space_called(server, o->word[2]) : NULL;

	if (space)
		set_limits(o, space, 1);
	else if (server)
		refuse(o, "namespace '%s' does not exist", o->word[2] ? o->word[2] : "");
}

static void get_space(struct order *o)
{
	struct server *server = complete(o, 3) ? server_called(o, o->word[3]) : NULL;
	struct namespace *space = server ? space_called(server, o->word[2]) : NULL;
	char path[PATH_MAX], folder[PATH_MAX];

	if (!server)
		return;
	if (!space)
		refuse(o, "namespace '%s' does not exist", o->word[2]);
	else if (!strcmp(o->word[4], "pipe-directory")) {
		folder_of(server, space, folder, sizeof folder);
		reply(o, "%s", pipe_path(path, folder) ? path : "");
	} else if (!strcmp(o->word[4], "pinned-memory-limit"))
		show_memory(o, space->memory);
	else if (!strcmp(o->word[4], "active-thread-percentage"))
		reply(o, "%.2f", space->percentage ? space->percentage : 100);
	else
		refuse(o, "unknown field '%s'", o->word[4]);
}

static void list_clients(struct order *o)
{
	const char *format = option(o, "format"), *name = option(o, "server");
	bool all = option(o, "all");

	if (!complete(o, 0) || (name && !server_called(o, name)))
		return;
	(void)all;
	list_start(o, format, "pid,server,device,namespace,command");
	for (unsigned i = 0; i < SERVERS; i++)
		for (unsigned c = 0; c < control.server[i].clients; c++)
			if (!name || !strcmp(name, control.server[i].name))
				reply(o, "%d,%s,0,%s,-\n", control.server[i].client[c], control.server[i].name,
				      control.server[i].in[c] ? control.server[i].in[c]->name : "-");
}

static void terminate_client(struct order *o)
{
	int pid = complete(o, 1) ? atoi(o->word[2]) : -1;

	for (unsigned i = 0; pid >= 0 && i < SERVERS; i++)
		for (unsigned c = 0; c < control.server[i].clients; c++)
			if (control.server[i].client[c] == pid) {
				post(control.server[i].fd, -1, "terminate %d", pid);
				return;
			}
	if (pid >= 0)
		refuse(o, "client %s does not exist", o->word[2]);
}

static const struct {
	const char *module, *verb;
	void (*run)(struct order *);
} orders[] = {
	{"server", "create", create_server},
	{"server", "delete", delete_server},
	{"server", "list", list_servers},
	{"server", "set", set_server},
	{"server", "get", get_server},
	{"namespace", "create", create_space},
	{"namespace", "delete", delete_space},
	{"namespace", "list", list_spaces},
	{"namespace", "set", set_space},
	{"namespace", "get", get_space},
	{"client", "list", list_clients},
	{"client", "terminate", terminate_client},
};

void command_of_module(const char *line, char *answer, size_t size)
{
	char *copy = strdup(line), *rest = copy, *word;
	struct order o = {.answer = answer, .size = size};

	reply(&o, "0");
	while ((word = strsep(&rest, "\t")) && o.words < WORDS && o.options < WORDS) {
		if (!strncmp(word, "--", 2) || strchr(word, '='))
			o.option[o.options++] = word + strspn(word, "-");
		else
			o.word[o.words++] = word;
	}
	for (size_t i = 0; o.words > 1 && i < sizeof orders / sizeof *orders; i++)
		if (!strcmp(orders[i].module, o.word[0]) && !strcmp(orders[i].verb, o.word[1])) {
			orders[i].run(&o);
			free(copy);
			return;
		}
	refuse(&o, "unknown command '%s %s'", o.words ? o.word[0] : "", o.words > 1 ? o.word[1] : "");
	free(copy);
}
