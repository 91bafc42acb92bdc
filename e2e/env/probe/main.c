// probe: tell what this container was given.
//
//   probe [devices]                 the GPUs and MIG devices that the driver shows
//   probe isolation [MAJORS MINORS] which device numbers can be opened; needs CAP_MKNOD
//   probe vectoradd                 compute something with CUDA
//   probe share [MIB|all [SECONDS]] what of each device may be used; allocate, and watch the context
//
// With --stay SECONDS in front it stays that long after the answer, or until SIGTERM, and so keeps what it
// was given.
#include "probe.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void *library(const char *name) {
	void *opened = dlopen(name, RTLD_NOW);
	if (opened == NULL)
		fprintf(stderr, "open %s: %s\n", name, dlerror());
	return opened;
}

void *symbol(void *library, const char *name) {
	void *found = dlsym(library, name);
	if (found == NULL)
		fprintf(stderr, "find %s: %s\n", name, dlerror());
	return found;
}

void text(const char *s) {
	putchar('"');
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			putchar('\\');
		if ((unsigned char)*s >= 0x20)
			putchar(*s);
	}
	putchar('"');
}

static int answer(int argc, char **argv) {
	if (argc == 0 || strcmp(argv[0], "devices") == 0)
		return devices();
	if (strcmp(argv[0], "isolation") == 0)
		return isolation(argc - 1, argv + 1);
	if (strcmp(argv[0], "vectoradd") == 0)
		return vectoradd();
	if (strcmp(argv[0], "share") == 0)
		return share(argc - 1, argv + 1);
	if (strcmp(argv[0], "vfio") == 0)
		return vfio();
	fprintf(stderr, "unknown question %s: must be one of devices, isolation, vectoradd, share, vfio\n", argv[0]);
	return 2;
}

// stay waits for SIGTERM, at most so many seconds. As the first process of a container nothing but an
// explicit wait sees the signal.
static void stay(long seconds) {
	const struct timespec most = {.tv_sec = seconds};
	sigset_t ends;
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	sigtimedwait(&ends, NULL, &most);
}

int main(int argc, char **argv) {
	int staying = argc > 2 && strcmp(argv[1], "--stay") == 0;
	int skip = staying ? 3 : 1;
	int status = answer(argc - skip, argv + skip);
	fflush(stdout);
	if (staying && status == 0)
		stay(strtol(argv[2], NULL, 10));
	return status;
}
