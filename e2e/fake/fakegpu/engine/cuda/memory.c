/* Device memory: memory of the process, counted against the device's size. */
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "charge.h"

static struct block {
	struct block *next;
	CUdevice device;
	void *memory;
	size_t size;
	struct charge charge;
	unsigned opens; /* of the memory of another process; 0 for own memory */
} *blocks;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t used(CUdevice device)
{
	size_t sum = 0;

	for (struct block *b = blocks; b; b = b->next)
		if (b->device == device)
			sum += b->size;
	return sum;
}

/* room returns how much can still be allocated of the device, without the limits of the control group. */
static CUresult room(CUdevice number, const struct device *d, unsigned long long *bytes)
{
	size_t own = used(number);

	if (!mps_client()) {
		*bytes = d->memory - own;
		return CUDA_SUCCESS;
	}
	TRY(mps_memory("room", d, 0, bytes));
	if (d->limit && d->limit - own < *bytes)
		*bytes = d->limit - own;
	return CUDA_SUCCESS;
}

static struct block *block_add(CUdevice number, size_t size, const struct charge *charge, unsigned opens)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct block *made = malloc(sizeof *made);

	if (memory == MAP_FAILED || !made)
		return NULL;
	*made = (struct block){.next = blocks, .device = number, .memory = memory, .size = size, .charge = *charge, .opens = opens};
	blocks = made;
	return made;
}

/* reserve allocates memory. The driver counts managed memory as the system's and not against the limits of control groups (NVIDIA Multi-Process Service, MPS v3
 * Memory Partitioning). */
static CUresult reserve(CUdevice number, const struct device *d, size_t size, bool managed, struct block **made)
{
	unsigned long long left;

	TRY(room(number, d, &left));
	struct charge charge = {0};
	if (size > left || !(managed || memory_charge(d->gpu, size, &charge)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult taken = mps_client() ? mps_memory("take", d, size, &left) : CUDA_SUCCESS;
	if (taken != CUDA_SUCCESS) {
		memory_release(&charge);
		return taken;
	}
	*made = block_add(number, size, &charge, 0);
	return *made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(CUdeviceptr *pointer, size_t size, bool managed)
{
	CUdevice number;
	struct device *d;
	struct block *made;

	REQUIRE(pointer && size);
	TRY(context_current(&number));
	TRY(device_get(number, &d));
	pthread_mutex_lock(&lock);
	CUresult result = reserve(number, d, size, managed, &made);
	pthread_mutex_unlock(&lock);
	if (result == CUDA_SUCCESS)
		*pointer = (CUdeviceptr)(uintptr_t)made->memory;
	return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) { return allocate(pointer, size, false); }

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned flags)
{
	REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
	return allocate(pointer, size, true);
}

/* block_find returns the link to the block at the pointer, which is NULL without one. */
static struct block **block_find(CUdeviceptr pointer, bool imported)
{
	struct block **at = &blocks;

	while (*at && ((CUdeviceptr)(uintptr_t)(*at)->memory != pointer || ((*at)->opens > 0) != imported))
		at = &(*at)->next;
	return at;
}

/* block_take gives a block back. With its last use it leaves the list, and the caller ends it; otherwise last is NULL. */
static CUresult block_take(CUdeviceptr pointer, bool imported, struct block **last)
{
	pthread_mutex_lock(&lock);
	struct block **at = block_find(pointer, imported), *found = *at;
	*last = found && (!imported || --found->opens == 0) ? found : NULL;
	if (*last)
		*at = found->next;
	pthread_mutex_unlock(&lock);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void block_end(struct block *block)
{
	memory_release(&block->charge);
	munmap(block->memory, block->size);
	free(block);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	CUdevice current;
	struct device *d;
	unsigned long long left;
	struct block *block;

	TRY(context_current(&current));
	TRY(block_take(pointer, false, &block));
	CUresult result = device_get(block->device, &d);
	if (result == CUDA_SUCCESS && mps_client())
		result = mps_memory("give", d, block->size, &left);
	block_end(block);
	return result;
}

/* The handle of memory for other processes. */
EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	CUdevice current;

	REQUIRE(handle);
	TRY(context_current(&current));
	pthread_mutex_lock(&lock);
	const struct block *found = *block_find(pointer, false);
	if (found)
		memcpy(handle, &found->charge, sizeof found->charge);
	pthread_mutex_unlock(&lock);
	REQUIRE(found);
	return CUDA_SUCCESS;
}

/* open_handle returns the block of a handle: the one of before, if the process has opened it already. */
static CUresult open_handle(CUdevice number, const struct charge *charge, struct block **block)
{
	for (struct block *b = blocks; b; b = b->next)
		if (b->charge.gpu == charge->gpu && b->charge.at[0] && b->charge.at[0] == charge->at[0]) {
			if (!b->opens)
				return CUDA_ERROR_INVALID_CONTEXT; /* a process cannot import what it exports */
			b->opens++;
			*block = b;
			return CUDA_SUCCESS;
		}
	*block = block_add(number, (size_t)charge->mib << 20, charge, 1);
	if (!*block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory_import(charge);
	return CUDA_SUCCESS;
}

/*
 * The importer holds what the exporter has charged, and its group is charged nothing (NVIDIA's open kernel modules share the object that was charged). Of the
 * memory, only the size is shared.
 */
EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
	CUdevice number;
	struct charge charge;
	struct device *d;
	struct block *block;

	REQUIRE(pointer && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	TRY(context_current(&number));
	TRY(device_get(number, &d));
	memcpy(&charge, &handle, sizeof charge);
	REQUIRE(charge.gpu == d->gpu && charge.mib);
	pthread_mutex_lock(&lock);
	CUresult result = open_handle(number, &charge, &block);
	pthread_mutex_unlock(&lock);
	if (result == CUDA_SUCCESS)
		*pointer = (CUdeviceptr)(uintptr_t)block->memory;
	return result;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	CUdevice current;
	struct block *block;

	TRY(context_current(&current));
	TRY(block_take(pointer, true, &block));
	if (block)
		block_end(block);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUdevice number;
	struct device *d;

	REQUIRE(free_bytes && total);
	TRY(context_current(&number));
	TRY(device_get(number, &d));
	unsigned long long left = 0, charged, seen = memory_seen(d->gpu, d->memory, &charged);
	pthread_mutex_lock(&lock);
	CUresult result = room(number, d, &left);
	pthread_mutex_unlock(&lock);
	*free_bytes = left < seen - charged ? left : seen - charged;
	*total = seen;
	return result;
}

CUresult memory_inside(CUdeviceptr at, size_t size)
{
	bool inside = false;

	pthread_mutex_lock(&lock);
	for (struct block *b = blocks; b && !inside; b = b->next) {
		CUdeviceptr begin = (CUdeviceptr)(uintptr_t)b->memory;
		inside = at >= begin && size <= b->size && at - begin <= b->size - size;
	}
	pthread_mutex_unlock(&lock);
	return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
	CUdevice device;

	REQUIRE(from);
	TRY(context_current(&device));
	TRY(memory_inside(to, size));
	memcpy((void *)(uintptr_t)to, from, size);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
	CUdevice device;

	REQUIRE(to);
	TRY(context_current(&device));
	TRY(memory_inside(from, size));
	memcpy(to, (const void *)(uintptr_t)from, size);
	return CUDA_SUCCESS;
}
