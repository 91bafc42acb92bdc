#define _GNU_SOURCE
#include "log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
	int fd;
	bool loud;
	const char *who;
} out = {.fd = -1};

void log_open(const char *name, const char *who, bool loud)
{
	const char *folder = getenv("CUDA_MPS_LOG_DIRECTORY");
	char path[PATH_MAX];

	out.who = who;
	out.loud = loud;
	if (loud)
		return;
	folder = folder && *folder ? folder : "/var/log/nvidia-mps";
	mkdir(folder, 0755);
	snprintf(path, sizeof path, "%s/%s", folder, name);
	out.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

void log_line(const char *format, ...)
{
	char text[2048], line[2304], clock[32];
	struct timespec now;
	struct tm local;
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof text, format, values);
	va_end(values);
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &local);
	strftime(clock, sizeof clock, "%Y-%m-%d %H:%M:%S", &local);
	int length = snprintf(line, sizeof line, "[%s.%03ld %s %5d] %s\n", clock, now.tv_nsec / 1000000, out.who, getpid(), text);
	if (out.fd >= 0 && write(out.fd, line, length) != length)
		out.fd = -1;
	if (out.loud && write(STDERR_FILENO, line, length) != length)
		out.loud = false;
}
