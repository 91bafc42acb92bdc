// Which device numbers this container may open, in one line:
//   {"granted":["120:0","120:255"],"denied":["120:1-254"],"other":[{"device":"121:3","error":"ENOENT"}]}
// For every number a node is made and opened. No driver stands behind the numbers, so an open that the
// container's device rules let through ends in ENXIO, one that they refuse in EPERM. Anything else is
// told as it is: it proves nothing.
#define _GNU_SOURCE
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

typedef struct {
	unsigned first, last;
} span;

// parse reads "A-B" or "A"; 0 on success.
static int parse(const char *s, span *into) {
	char end;
	int n = sscanf(s, "%u-%u%c", &into->first, &into->last, &end);
	if (n == 1 && strchr(s, '-') == NULL)
		into->last = into->first;
	else if (n != 2)
		return -1;
	return into->first > into->last;
}

// try makes a node for the device number and opens it. It returns the errno of the open, 0 when it
// succeeded, and leaves with an error when no node can be made: then nothing is proven.
static int try(const char *folder, unsigned major, unsigned minor) {
	char path[64];
	snprintf(path, sizeof path, "%s/%u-%u", folder, major, minor);
	if (mknod(path, S_IFCHR | 0600, makedev(major, minor)) != 0) {
		fprintf(stderr, "make a node for %u:%u: %s (the container needs CAP_MKNOD)\n", major, minor, strerror(errno));
		exit(1);
	}
	int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	int error = opened < 0 ? errno : 0;
	if (opened >= 0)
		close(opened);
	unlink(path);
	return error;
}

// list prints the runs of minors whose answer is wanted, as "major:first-last".
static void list(const int *answers, span majors, span minors, int wanted) {
	unsigned width = minors.last - minors.first + 1;
	int shown = 0;
	for (unsigned major = majors.first; major <= majors.last; major++) {
		const int *row = answers + (size_t)(major - majors.first) * width;
		for (unsigned i = 0; i < width; i++) {
			unsigned from = i;
			if (row[i] != wanted)
				continue;
			while (i + 1 < width && row[i + 1] == wanted)
				i++;
			printf("%s\"%u:%u", shown++ > 0 ? "," : "", major, minors.first + from);
			if (i > from)
				printf("-%u", minors.first + i);
			putchar('"');
		}
	}
}

static void others(const int *answers, span majors, span minors) {
	unsigned width = minors.last - minors.first + 1;
	int shown = 0;
	for (size_t i = 0; i < (size_t)(majors.last - majors.first + 1) * width; i++) {
		if (answers[i] == ENXIO || answers[i] == EPERM)
			continue;
		printf("%s{\"device\":\"%u:%u\",\"error\":", shown++ > 0 ? "," : "", majors.first + (unsigned)(i / width),
		       minors.first + (unsigned)(i % width));
		text(answers[i] == 0 ? "opened" : strerrorname_np(answers[i]));
		putchar('}');
	}
}

int isolation(int argc, char **argv) {
	// 120-127 are never assigned to a driver; 4399 is above the last MIG capability of 32 GPUs.
	span majors = {120, 127}, minors = {0, 4399};
	if (argc == 2 ? parse(argv[0], &majors) != 0 || parse(argv[1], &minors) != 0 : argc != 0) {
		fprintf(stderr, "usage: probe isolation [FIRST-LAST FIRST-LAST]\n");
		return 2;
	}
	char folder[] = "/tmp/probe-XXXXXX";
	if (mkdtemp(folder) == NULL) {
		fprintf(stderr, "make a folder in /tmp: %s\n", strerror(errno));
		return 1;
	}
	unsigned width = minors.last - minors.first + 1;
	int *answers = calloc((size_t)(majors.last - majors.first + 1) * width, sizeof *answers);
	if (answers == NULL)
		return 1;
	for (unsigned major = majors.first; major <= majors.last; major++)
		for (unsigned minor = minors.first; minor <= minors.last; minor++)
			answers[(size_t)(major - majors.first) * width + minor - minors.first] = try(folder, major, minor);
	rmdir(folder);
	printf("{\"granted\":[");
	list(answers, majors, minors, ENXIO);
	printf("],\"denied\":[");
	list(answers, majors, minors, EPERM);
	printf("],\"other\":[");
	others(answers, majors, minors);
	printf("]}\n");
	free(answers);
	return 0;
}
