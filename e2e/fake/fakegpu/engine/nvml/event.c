/* Events: every set reads the state's ring at its own pace, so each process sees each event once. */
#include "session.h"

#include <stdlib.h>
#include <time.h>

#define SUPPORTED (nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError | \
		   nvmlEventMigConfigChange)

struct nvmlEventSet_st {
	unsigned long long types[MAX_GPUS]; /* registered */
	uint32_t since[MAX_GPUS];	    /* the first event that counts */
	uint32_t next;			    /* the next to read */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	ENTER();
	REQUIRE(set);
	set->handle = calloc(1, sizeof *set->handle);
	if (!set->handle)
		return NVML_ERROR_MEMORY;
	set->handle->next = event_count();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	ENTER();
	REQUIRE(set.handle);
	free(set.handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	struct target target;

	ENTER_GPU(&target, types);
	*types = SUPPORTED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	struct target target;

	ENTER_GPU(&target, set.handle);
	if (types & ~SUPPORTED)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!set.handle->types[target.gpu])
		set.handle->since[target.gpu] = event_count();
	set.handle->types[target.gpu] |= types;
	return NVML_SUCCESS;
}

/* wanted reports whether the set has registered the event and this process may see it. */
static bool wanted(const struct nvmlEventSet_st *set, uint32_t number, const struct event *event)
{
	if (event->gpu >= MAX_GPUS || !(set->types[event->gpu] & event->type))
		return false;
	if ((int32_t)(number - set->since[event->gpu]) < 0)
		return false;
	return event->instance >= MAX_INSTANCES || event->compute >= MAX_COMPUTES ||
	       visible_instance(event->gpu, event->instance, event->compute);
}

/* take reads the events up to the count and copies the first that is wanted. */
static bool take(struct nvmlEventSet_st *set, uint32_t count, struct event *event)
{
	if (count - set->next >= MAX_EVENTS)
		set->next = count - (MAX_EVENTS - 1); /* the older ones are overwritten */
	while (set->next != count) {
		uint32_t number = set->next++;
		if (event_copy(number, event) && wanted(set, number, event))
			return true;
	}
	return false;
}

static bool passed(const struct timespec *deadline)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec != deadline->tv_sec ? now.tv_sec > deadline->tv_sec : now.tv_nsec >= deadline->tv_nsec;
}

/* next waits for an event; a signal never ends the wait early. */
static nvmlReturn_t next(struct nvmlEventSet_st *set, unsigned timeout_ms, struct event *event)
{
	struct timespec deadline;

	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += timeout_ms / 1000;
	deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (deadline.tv_nsec >= 1000000000L) {
		deadline.tv_sec++;
		deadline.tv_nsec -= 1000000000L;
	}
	for (;;) {
		uint32_t count = event_count();
		TRY(session_alive());
		if (take(set, count, event))
			return NVML_SUCCESS;
		if (passed(&deadline))
			return NVML_ERROR_TIMEOUT;
		event_wait(count, &deadline);
	}
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	struct event event;

	ENTER();
	REQUIRE(set.handle && data);
	TRY(next(set.handle, timeout_ms, &event));
	*data = (nvmlEventData_t){
		.device = gpu_handle(event.gpu), .eventType = event.type, .eventData = event.data,
		.gpuInstanceId = event.instance, .computeInstanceId = event.compute,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	return nvmlEventSetWait_v2(set, data, timeout_ms);
}
