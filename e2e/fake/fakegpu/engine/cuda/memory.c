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
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	*made = malloc(sizeof **made);
	if (memory == MAP_FAILED || !*made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	**made = (struct block){.next = blocks, .device = number, .memory = memory, .size = size, .charge = charge};
	blocks = *made;
	return CUDA_SUCCESS;
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

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	struct block *found = NULL;
	CUdevice current;

	TRY(context_current(&current));
	pthread_mutex_lock(&lock);
	for (struct block **at = &blocks; *at && !found; at = &(*at)->next)
		if ((CUdeviceptr)(uintptr_t)(*at)->memory == pointer) {
			found = *at;
			*at = found->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	REQUIRE(found);
	struct device *d;
	unsigned long long left;
	CUresult result = device_get(found->device, &d);
	if (result == CUDA_SUCCESS && mps_client())
		result = mps_memory("give", d, found->size, &left);
	memory_release(&found->charge);
	munmap(found->memory, found->size);
	free(found);
	return result;
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
