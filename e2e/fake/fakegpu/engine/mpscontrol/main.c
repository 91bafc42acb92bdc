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

struct control control = {.quit = -1, .percentage = 100};

/* As driver 580 prints it, without the commands. */
static const char usage[] = "nvidia-cuda-mps-control [options] [command]\n"
			    "OPTIONS:\n"
			    "  -h,--help                Print this message\n"
			    "  -d,--daemon              Setup the daemon in the background\n"
			    "  -f,--forground           Setup the daemon in the foreground\n"
			    "  -M,--multiuser-server    Enable multi-user mode\n";

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

int main(int count, char **arguments)
{
	bool foreground = false, detached = false;

	setlinebuf(stdout);
	for (int i = 1; i < count; i++) {
		const char *flag = arguments[i] + (!strncmp(arguments[i], "--", 2) ? 1 : 0);
		if (!strcmp(flag, "-f"))
			foreground = true;
		else if (!strcmp(flag, "-d"))
			detached = true;
		else if (!strcmp(flag, "-M") || !strcmp(flag, "-multiuser-server"))
			control.multiuser = true;
		else if (!strcmp(flag, "-h") || !strcmp(flag, "-help")) {
			fputs(usage, stdout);
			return 0;
		} else if (!strcmp(flag, "-v")) {
			puts("CUDA MPS Control binary version: 13000");
			return 0;
		} else {
			fputs(usage, stdout);
			return 1;
		}
	}
	if (foreground && detached) {
		fputs(usage, stdout);
		return 1;
	}
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
