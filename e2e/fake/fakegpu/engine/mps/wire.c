#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool pipe_path(char *path, const char *name)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	size_t room = sizeof((struct sockaddr_un){0}).sun_path;

	return (size_t)snprintf(path, room, "%s/%s", folder && *folder ? folder : "/tmp/nvidia-mps", name) < room;
}

int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (!pipe_path(address.sun_path, "control"))
		return -1;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address)) {
		close(fd);
		return -1;
	}
	return fd;
}

bool post(int fd, int descriptor, const char *format, ...)
{
	char text[PACKET];
	union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
	va_list values;

	va_start(values, format);
	int length = vsnprintf(text, sizeof text, format, values);
	va_end(values);
	struct iovec part = {.iov_base = text, .iov_len = length < PACKET ? length + 1 : PACKET};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (descriptor >= 0) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof control.room;
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		*header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL) > 0;
}

bool fetch(int fd, char *packet, int *descriptor)
{
	union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
	struct iovec part = {.iov_base = packet, .iov_len = PACKET - 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t length;

	if (descriptor) {
		*descriptor = -1;
		message.msg_control = control.room;
		message.msg_controllen = sizeof control.room;
	}
	do {
		length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	} while (length < 0 && errno == EINTR);
	if (length <= 0)
		return false;
	packet[length] = 0;
	struct cmsghdr *header = descriptor ? CMSG_FIRSTHDR(&message) : NULL;
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
	return true;
}

bool peer(int fd, pid_t *pid, uid_t *uid)
{
	struct ucred who;
	socklen_t size = sizeof who;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
		return false;
	*pid = who.pid;
	*uid = who.uid;
	return true;
}

bool parse_percentage(const char *text, double *percentage)
{
	char *end;

	*percentage = strtod(text, &end);
	return end != text && !*end && *percentage > 0 && *percentage <= 100;
}

uint64_t parse_memory(const char *text)
{
	char *end;
	uint64_t number = strtoull(text, &end, 10);

	return number << (*end == 'G' ? 30 : 20);
}

uint64_t memory_limit(const char *list, unsigned number, const char *uuid)
{
	char *copy = strdup(list), *rest = copy, *one, *end;
	uint64_t limit = 0;

	while (copy && (one = strsep(&rest, ","))) {
		char *value = strchr(one, '=');
		if (!value || value == one)
			continue;
		*value++ = 0;
		bool named = strtoul(one, &end, 10) == number && !*end;
		if (named || (uuid && !strncmp(uuid, one, strlen(one))))
			limit = parse_memory(value);
	}
	free(copy);
	return limit;
}
