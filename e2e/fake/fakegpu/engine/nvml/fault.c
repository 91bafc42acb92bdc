#define _GNU_SOURCE
#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FOREVER UINT32_MAX

void pause_ms(uint32_t ms)
{
	struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) == EINTR)
		;
}

/* spend takes one of the remaining failures; a container cannot write the count and has no
 * failure. */
static bool spend(const char *function)
{
	bool spent = false;

	if (!state_writable())
		return false;
	struct live *live = state_begin();
	for (unsigned i = 0; i < live->fault_count && !spent; i++) {
		struct fault *fault = &live->faults[i];
		if (!strcmp(fault->function, function) && fault->count) {
			fault->count--;
			spent = true;
		}
	}
	spent ? state_commit() : state_abort();
	return spent;
}

nvmlReturn_t fault_apply(const char *function)
{
	struct fault fault;

	if (!live_fault(function, &fault))
		return NVML_SUCCESS;
	if (fault.delay_ms)
		pause_ms(fault.delay_ms);
	if (fault.count == FOREVER || (fault.count && spend(function)))
		return fault.code;
	return NVML_SUCCESS;
}

/* log_call appends the function's name to the file FAKE_NVML_LOG, in one write. */
static void log_call(const char *function)
{
	const char *path = getenv("FAKE_NVML_LOG");
	char line[128];

	if (!path)
		return;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	int length = snprintf(line, sizeof line, "%s\n", function);
	if (write(fd, line, length) != length)
		fprintf(stderr, "fakegpu: cannot write to %s\n", path);
	close(fd);
}

/* keep_loaded pins the library, so that its count of calls lives as long as the process. */
static void keep_loaded(void)
{
	Dl_info info;

	if (dladdr((void *)keep_loaded, &info))
		dlopen(info.dli_fname, RTLD_LAZY | RTLD_NODELETE);
}

nvmlReturn_t called(const char *function)
{
	static unsigned calls;
	const char *plan = getenv("FAKE_NVML_FAIL");
	unsigned number, code;

	log_call(function);
	if (!plan || sscanf(plan, "%u:%u", &number, &code) != 2)
		return NVML_SUCCESS;
	if (!calls)
		keep_loaded();
	return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) == number ? (nvmlReturn_t)code : NVML_SUCCESS;
}
