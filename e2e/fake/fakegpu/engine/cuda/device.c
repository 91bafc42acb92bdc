/* The devices of a process. With MIG, CUDA uses one MIG device, however many are visible. */
#define _GNU_SOURCE
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "charge.h"
#include "view.h"

enum { MOST = MAX_GPUS * MAX_INSTANCES };

static struct {
	bool ready;
	unsigned count;
	struct device list[MOST];
} devices;

static const struct profile_part *profile_of(const struct model_part *model, const struct instance *instance)
{
	for (unsigned i = 0; i < model->profile_count; i++)
		if (model->profiles[i].id == instance->profile)
			return &model->profiles[i];
	return NULL;
}

static const struct compute_part *compute_of(const struct profile_part *profile, const struct compute *compute)
{
	for (unsigned i = 0; i < profile->compute_count; i++)
		if (profile->compute[i].id == compute->profile)
			return &profile->compute[i];
	return NULL;
}

/* parse_uuid reads the bytes of GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx. */
static void parse_uuid(const char *text, unsigned char *bytes)
{
	unsigned count = 0, byte;

	for (text += 4; *text && count < 16; text += 2) {
		text += *text == '-';
		if (sscanf(text, "%2x", &byte) == 1)
			bytes[count++] = byte;
	}
}

static void add_gpu(unsigned gpu)
{
	const struct gpu_part *part = &hardware()->gpus[gpu];
	const struct model_part *model = &hardware()->models[part->model];
	struct device *d = &devices.list[devices.count++];

	*d = (struct device){.gpu = gpu, .memory = (model->memory_mib - model->reserved_mib) << 20, .multiprocessors = model->multiprocessors};
	snprintf(d->name, sizeof d->name, "%s", model->product);
	parse_uuid(part->uuid, d->gpu_uuid);
	memcpy(d->uuid, d->gpu_uuid, sizeof d->uuid);
}

static void add_mig(unsigned gpu, const struct gpu_state *state, unsigned i, unsigned c)
{
	const struct model_part *model = &hardware()->models[hardware()->gpus[gpu].model];
	const struct profile_part *profile = profile_of(model, &state->instances[i]);
	const struct compute_part *compute = compute_of(profile, &state->instances[i].computes[c]);
	bool whole = compute->multiprocessors == profile->multiprocessors;
	char part[16] = "";

	add_gpu(gpu);
	struct device *d = &devices.list[devices.count - 1];
	d->mig = true;
	d->instance = i;
	d->compute = c;
	d->memory = profile->memory_mib << 20;
	d->multiprocessors = compute->multiprocessors;
	memcpy(d->uuid, state->instances[i].computes[c].uuid, sizeof d->uuid);
	if (!whole)
		snprintf(part, sizeof part, "%uc.", compute->slices);
	snprintf(d->name, sizeof d->name, "%s MIG %s%s", model->product, part, profile->name);
}

/* find_migs adds every visible MIG device. */
static void find_migs(unsigned gpu, const struct gpu_state *state)
{
	for (unsigned i = 0; i < MAX_INSTANCES; i++)
		for (unsigned c = 0; c < MAX_COMPUTES; c++)
			if (state->instances[i].computes[c].used && devices.count < MOST && visible_instance(gpu, i, c))
				add_mig(gpu, state, i, c);
}

/* find_devices adds whole GPUs only where no MIG device is visible, or where one is named by its UUID. */
static void find_devices(void)
{
	const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
	bool whole = chosen && !strncmp(chosen, "GPU-", 4);
	struct gpu_state state;

	for (unsigned gpu = 0; gpu < hardware()->gpu_count && !whole; gpu++) {
		live_gpu(gpu, &state);
		if (!state.lost && state.mig && visible_gpu(gpu) && gpu_attach(gpu))
			find_migs(gpu, &state);
	}
	if (devices.count)
		return;
	for (unsigned gpu = 0; gpu < hardware()->gpu_count; gpu++) {
		live_gpu(gpu, &state);
		if (!state.lost && !state.mig && visible_gpu(gpu) && gpu_attach(gpu))
			add_gpu(gpu);
	}
}

void device_uuid(const struct device *d, char *text, size_t size)
{
	const unsigned char *b = d->uuid;

	snprintf(text, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", d->mig ? "MIG" : "GPU",
		 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* named finds a device by number or by the beginning of its UUID. */
static const struct device *named(const char *name, const struct device *list, unsigned count)
{
	char *end, text[64];
	unsigned long number = strtoul(name, &end, 10);

	if (end != name && !*end)
		return number < count ? &list[number] : NULL;
	for (unsigned i = 0; i < count; i++) {
		device_uuid(&list[i], text, sizeof text);
		if (*name && !strncmp(text, name, strlen(name)))
			return &list[i];
	}
	return NULL;
}

/* share keeps the devices of the MPS server. */
static void share(void)
{
	unsigned count = devices.count;

	devices.count = 0;
	for (unsigned i = 0; i < count; i++)
		if (mps_device(&devices.list[i], devices.count)) {
			struct device kept = devices.list[i];
			devices.list[devices.count++] = kept;
		}
}

/* choose keeps the devices that CUDA_VISIBLE_DEVICES names, up to the first name that is not valid. */
static void choose(const char *names)
{
	static struct device all[MOST];
	unsigned count = devices.count;
	char *copy = strdup(names), *rest = copy, *name;

	memcpy(all, devices.list, sizeof all);
	devices.count = 0;
	while (copy && (name = strsep(&rest, ","))) {
		const struct device *d = named(name, all, count);
		if (!d || devices.count == count)
			break;
		devices.list[devices.count++] = *d;
	}
	free(copy);
}

EXPORT CUresult cuInit(unsigned flags)
{
	struct live_head head;

	REQUIRE(!flags);
	if (devices.ready)
		return CUDA_SUCCESS;
	switch (state_open()) {
	case STATE_MISSING:
		return CUDA_ERROR_NO_DEVICE;
	case STATE_FOREIGN:
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	case STATE_OK:
		break;
	}
	live_head(&head);
	if (!head.loaded || !visible_control()) {
		state_close();
		return CUDA_ERROR_NO_DEVICE;
	}
	if (strcmp(head.driver_version, library_version()) || !visible_uvm()) {
		state_close();
		return CUDA_ERROR_UNKNOWN;
	}
	devices.count = 0;
	find_devices();
	CUresult connected = mps_connect();
	if (connected != CUDA_SUCCESS) {
		state_close();
		return connected;
	}
	if (mps_client())
		share();
	if (getenv("CUDA_VISIBLE_DEVICES"))
		choose(getenv("CUDA_VISIBLE_DEVICES"));
	if (devices.count && devices.list[0].mig)
		devices.count = 1;
	devices.ready = devices.count > 0;
	if (!devices.ready)
		state_close();
	return devices.ready ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult device_get(CUdevice number, struct device **device)
{
	if (!devices.ready)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (number < 0 || (unsigned)number >= devices.count)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = &devices.list[number];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	struct live_head head;

	REQUIRE(version);
	if (!devices.ready && state_open() != STATE_OK)
		return CUDA_ERROR_NOT_INITIALIZED;
	live_head(&head);
	*version = head.cuda_version;
	if (!devices.ready)
		state_close();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	REQUIRE(count);
	*count = devices.count;
	return devices.ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	struct device *d;

	REQUIRE(device);
	TRY(device_get(ordinal, &d));
	*device = ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	struct device *d;

	REQUIRE(name && length > 0);
	TRY(device_get(device, &d));
	snprintf(name, length, "%s", d->name);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	struct device *d;

	REQUIRE(uuid);
	TRY(device_get(device, &d));
	memcpy(uuid->bytes, d->gpu_uuid, sizeof uuid->bytes);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	struct device *d;

	REQUIRE(uuid);
	TRY(device_get(device, &d));
	memcpy(uuid->bytes, d->uuid, sizeof uuid->bytes);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	struct device *d;

	REQUIRE(bytes);
	TRY(device_get(device, &d));
	*bytes = d->memory;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	struct gpu_state state;
	struct device *d;

	REQUIRE(value);
	TRY(device_get(device, &d));
	const struct gpu_part *part = &hardware()->gpus[d->gpu];
	const struct model_part *model = &hardware()->models[part->model];
	switch (attribute) {
	case 1: /* MAX_THREADS_PER_BLOCK */
		*value = 1024;
		return CUDA_SUCCESS;
	case 10: /* WARP_SIZE */
		*value = 32;
		return CUDA_SUCCESS;
	case 16: /* MULTIPROCESSOR_COUNT */
		*value = d->multiprocessors;
		return CUDA_SUCCESS;
	case 20: /* COMPUTE_MODE */
		live_gpu(d->gpu, &state);
		*value = state.compute_mode;
		return CUDA_SUCCESS;
	case 33: /* PCI_BUS_ID */
		*value = part->bus;
		return CUDA_SUCCESS;
	case 34: /* PCI_DEVICE_ID */
		*value = part->device;
		return CUDA_SUCCESS;
	case 50: /* PCI_DOMAIN_ID */
		*value = part->domain;
		return CUDA_SUCCESS;
	case 75: /* COMPUTE_CAPABILITY_MAJOR */
		*value = model->compute_major;
		return CUDA_SUCCESS;
	case 76: /* COMPUTE_CAPABILITY_MINOR */
		*value = model->compute_minor;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}
