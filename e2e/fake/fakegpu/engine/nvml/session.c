#define _GNU_SOURCE
#include "session.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "charge.h"
#include "fault.h"

static struct {
	unsigned references;
	uint32_t loads; /* of the driver, when the session began */
	unsigned count, gpus[MAX_GPUS];
} session;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static nvmlReturn_t session_open(void)
{
	struct live_head head;

	switch (state_open()) {
	case STATE_MISSING:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	case STATE_FOREIGN:
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	case STATE_OK:
		break;
	}
	live_head(&head);
	nvmlReturn_t result = NVML_SUCCESS;
	if (!head.loaded || !visible_control())
		result = NVML_ERROR_DRIVER_NOT_LOADED;
	else if (strcmp(head.driver_version, library_version()))
		result = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	if (result != NVML_SUCCESS) {
		state_close();
		return result;
	}
	session.loads = head.loads;
	session.count = 0;
	for (unsigned gpu = 0; gpu < hardware()->gpu_count; gpu++)
		if (visible_gpu(gpu) && gpu_attach(gpu)) {
			session.gpus[session.count++] = gpu;
			gpu_watch(gpu);
		}
	return NVML_SUCCESS;
}

static nvmlReturn_t init(const char *function)
{
	nvmlReturn_t result = NVML_SUCCESS;

	TRY(called(function));
	pthread_mutex_lock(&lock);
	if (!session.references)
		result = session_open();
	if (result == NVML_SUCCESS) {
		session.references++;
		result = fault_apply(function);
		if (result != NVML_SUCCESS && !--session.references)
			state_close();
	}
	pthread_mutex_unlock(&lock);
	return result;
}

nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }
nvmlReturn_t nvmlInit(void) { return init(__func__); }

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return init(__func__);
}

nvmlReturn_t nvmlShutdown(void)
{
	ENTER();
	pthread_mutex_lock(&lock);
	if (!--session.references)
		state_close();
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

nvmlReturn_t session_alive(void)
{
	struct live_head head;

	live_head(&head);
	return head.loaded && head.loads == session.loads ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

/* wait_for_changes waits until no instance of any GPU is created or destroyed. */
static void wait_for_changes(void)
{
	for (unsigned gpu = 0; gpu < hardware()->gpu_count; gpu++) {
		gpu_busy_begin(gpu);
		gpu_busy_end(gpu);
	}
}

nvmlReturn_t enter(const char *function)
{
	TRY(called(function));
	if (!session.references)
		return NVML_ERROR_UNINITIALIZED;
	TRY(fault_apply(function));
	if (state_writable() && live_stalls())
		wait_for_changes();
	return strcmp(function, "nvmlShutdown") ? session_alive() : NVML_SUCCESS;
}

nvmlReturn_t stub(const char *function);

/* stub is the body of every function that the fake does not implement. */
nvmlReturn_t stub(const char *function)
{
	TRY(enter(function));
	return NVML_ERROR_NOT_SUPPORTED;
}

unsigned session_count(void) { return session.count; }
unsigned session_gpu(unsigned index) { return session.gpus[index]; }

nvmlReturn_t write_text(char *buffer, unsigned size, const char *text)
{
	REQUIRE(buffer);
	if (strlen(text) >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(buffer, text);
	return NVML_SUCCESS;
}
