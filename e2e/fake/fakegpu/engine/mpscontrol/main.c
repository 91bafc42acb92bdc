/*
 * nvidia-cuda-mps-control: with -f or -d the control daemon, otherwise the command line of the daemon
 * of CUDA_MPS_PIPE_DIRECTORY.
 */
#define _GNU_SOURCE
#include "control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct control control = {.quit = -1, .percentage = 100, .protocol = 2};

/* As driver 580 prints it, without the commands. */
static const char usage[] = "nvidia-cuda-mps-control [options] [command]\n"
			    "OPTIONS:\n"
			    "  -h,--help                Print this message\n"
			    "  -d,--daemon              Setup the daemon in the background\n"
			    "  -f,--forground           Setup the daemon in the foreground\n"
			    "  -M,--multiuser-server    Enable multi-user mode\n";

/* Of driver 615, with -p 3 (MPS v3 Interface; the words are not NVIDIA's). */
static const char usage3[] = "nvidia-cuda-mps-control [options] | <module> <verb> [arguments]\n"
			     "  -h, --help | -d, --daemon | -f, --foreground | -m, --multiuser | -a, --apply <file> | -p, --protocol <2|3> | -q, --quit | -v, --version\n"
			     "Modules: server, namespace, client, device, sm-partition, feature, memacct, context-share\n";

/* background starts the daemon in a new session and waits until it listens. */
static int background(void)
{
	int ready[2];
	char word = 1;

	if (pipe(ready))
		return 1;
	pid_t pid = fork();
	if (pid < 0)
		return 1;
	if (!pid) {
		close(ready[0]);
		setsid();
		run_daemon(ready[1]);
	}
	close(ready[1]);
	return read(ready[0], &word, 1) == 1 ? 0 : 1;
}

/* flag_of returns the option without the dashes, or NULL for a word. */
static const char *flag_of(const char *word)
{
	return *word != '-' ? NULL : word + strspn(word, "-");
}

static int refuse(void)
{
	fputs(control.protocol == 3 ? usage3 : usage, stdout);
	return 1;
}

/* modules sends the words of a command of version 3 to the daemon. */
static int modules(char **words)
{
	char line[PACKET] = "", answer[PACKET];
	int fd = dial();

	for (size_t used = 0; *words && used < sizeof line; words++)
		used += snprintf(line + used, sizeof line - used, "%s%s", used ? "\t" : "", *words);
	if (fd < 0 || !post(fd, -1, "ui") || !fetch(fd, answer, NULL)) {
		fputs("Cannot find MPS control daemon process\n", stderr);
		return 1;
	}
	if (strcmp(answer, "ok 3")) /* it follows the daemon */
		return refuse();
	if (!post(fd, -1, "%s", line) || !fetch(fd, answer, NULL)) {
		fputs("Connection to the MPS control daemon is broken\n", stderr);
		return 1;
	}
	if (*answer != '0')
		fprintf(stderr, "%s\n", *answer ? answer + 1 : "");
	else
		fputs(answer + 1, stdout);
	return *answer != '0' && strcmp(line, "quit");
}

int main(int count, char **arguments)
{
	bool foreground = false, detached = false, help = false;
	const char *protocol = NULL;
	int i;

	setlinebuf(stdout);
	for (i = 1; i < count && flag_of(arguments[i]); i++) {
		const char *flag = flag_of(arguments[i]);
		if (!strcmp(flag, "f"))
			foreground = true;
		else if (!strcmp(flag, "d"))
			detached = true;
		else if (!strcmp(flag, "M") || !strcmp(flag, "multiuser-server"))
			control.multiuser = true;
		else if (!strcmp(flag, "h") || !strcmp(flag, "help"))
			help = true;
		else if (!strcmp(flag, "v")) {
			puts("CUDA MPS Control binary version: 13000");
			return 0;
		} else if (NEWEST && i + 1 < count && (!strcmp(flag, "p") || !strcmp(flag, "protocol")))
			protocol = arguments[++i];
		else if (NEWEST && (!strcmp(flag, "m") || !strcmp(flag, "multiuser")))
			control.multiuser = true;
		else if (NEWEST && (!strcmp(flag, "q") || !strcmp(flag, "quit")))
			return modules((char *[]){"quit", NULL});
		else
			return refuse();
	}
	if (NEWEST && getenv("CUDA_MPS_PROTOCOL_VERSION"))
		protocol = getenv("CUDA_MPS_PROTOCOL_VERSION");
	if (protocol && strcmp(protocol, "2") && strcmp(protocol, "3"))
		return refuse();
	control.protocol = protocol ? atoi(protocol) : 2;
	if (help)
		return refuse() - 1;
	if ((foreground && detached) || (i < count && (!NEWEST || foreground || detached)))
		return refuse();
	if (i < count)
		return modules(arguments + i);
	control.loud = foreground;
	if (foreground)
		run_daemon(-1);
	return detached ? background() : command_line();
}

int command_line(void)
{
	char *line = NULL, answer[PACKET];
	size_t size = 0;
	int fd = dial();

	if (fd < 0 || !post(fd, -1, "ui") || !fetch(fd, answer, NULL)) {
		fputs("Cannot find MPS control daemon process\n", stderr);
		return 1;
	}
	while (getline(&line, &size, stdin) > 0) {
		line[strcspn(line, "\r\n")] = 0;
		if (!line[strspn(line, " \t")]) {
			puts("Unknown command \"\"");
			continue;
		}
		if (!post(fd, -1, "%s", line) || !fetch(fd, answer, NULL)) {
			puts("Connection to the MPS control daemon is broken");
			return 1;
		}
		fputs(answer, stdout);
		if (*answer && answer[strlen(answer) - 1] != '\n')
			putchar('\n');
		if (!strncmp(line, "quit", 4) && !*answer)
			return 0;
	}
	return 0;
}
