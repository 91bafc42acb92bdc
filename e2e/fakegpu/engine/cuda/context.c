/* Contexts. One holds its device: nobody can destroy the instance or reset the GPU meanwhile. */
#include "cuda.h"

#include <pthread.h>
#include <stdlib.h>

#include "state.h"

struct CUctx_st {
	CUdevice device;
	unsigned references; /* of a primary context */
};

enum { MOST = 16 * 15, WHOLE_GPU = 15 };

static struct CUctx_st primary[MOST];
static unsigned contexts[MOST]; /* per device */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local CUcontext current;

static CUresult hold(CUdevice number)
{
	struct device *d;

	TRY(device_get(number, &d));
	pthread_mutex_lock(&lock);
	bool taken = contexts[number] || holder_take(d->gpu, d->mig ? d->instance : WHOLE_GPU, d->mig ? d->compute : 0);
	contexts[number] += taken;
	pthread_mutex_unlock(&lock);
	return taken ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static void let_go(CUdevice number)
{
	struct device *d;

	if (device_get(number, &d) != CUDA_SUCCESS)
		return;
	pthread_mutex_lock(&lock);
	if (!--contexts[number])
		holder_release(d->gpu, d->mig ? d->instance : WHOLE_GPU, d->mig ? d->compute : 0);
	pthread_mutex_unlock(&lock);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	(void)flags;
	REQUIRE(context);
	TRY(hold(device));
	*context = calloc(1, sizeof **context);
	if (!*context) {
		let_go(device);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	(*context)->device = device;
	current = *context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	REQUIRE(context);
	if (current == context)
		current = NULL;
	let_go(context->device);
	free(context);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	REQUIRE(context);
	TRY(hold(device));
	primary[device].device = device;
	primary[device].references++;
	*context = &primary[device];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct device *d;

	TRY(device_get(device, &d));
	if (!primary[device].references)
		return CUDA_ERROR_INVALID_CONTEXT;
	primary[device].references--;
	let_go(device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	current = context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	REQUIRE(context);
	*context = current;
	return CUDA_SUCCESS;
}

CUresult context_current(CUdevice *number)
{
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*number = current->device;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	REQUIRE(device);
	return context_current(device);
}

EXPORT CUresult cuCtxSynchronize(void)
{
	CUdevice device;

	return context_current(&device);
}
