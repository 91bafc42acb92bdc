/* Contexts. A context holds its device: until it ends, the instance cannot be destroyed and the
 * GPU cannot be reset. */
#include "cuda.h"

#include <pthread.h>
#include <stdlib.h>

#include "charge.h"
#include "state.h"

struct CUctx_st {
	CUdevice device;
	unsigned references; /* of a primary context */
	CUresult broken;     /* the error of a kernel, which the context keeps */
};

enum { MOST = 16 * 15, PROHIBITED = 2, EXCLUSIVE_PROCESS = 3 };

static struct CUctx_st primary[MOST];
static unsigned contexts[MOST]; /* per device */
static struct charge charges[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local CUcontext current;

/* take holds the device for this process, or returns the error of CUDA. */
static CUresult take(const struct device *d)
{
	struct gpu_state state;
	CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;

	if (d->mig)
		return holder_take(d->gpu, d->instance, d->compute) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
	holding_begin();
	live_gpu(d->gpu, &state);
	bool alone = state.compute_mode == EXCLUSIVE_PROCESS && !mps_client();
	if (state.compute_mode != PROHIBITED && !(alone && held(d->gpu, HOLDS_GPU, 0, 1)))
		result = holder_take(d->gpu, HOLDS_GPU, mps_client()) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
	holding_end();
	return result;
}

/* CONTEXT is what the contexts of a process on a GPU need of its memory, as measured without a limit of multiprocessors on drivers of branch 615. */
#define CONTEXT (256ull << 20)

static CUresult hold(CUdevice number)
{
	CUresult result = CUDA_SUCCESS;
	struct device *d;

	TRY(device_get(number, &d));
	TRY(mps_alive());
	pthread_mutex_lock(&lock);
	if (!contexts[number] && !memory_charge(d->gpu, CONTEXT, &charges[number]))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!contexts[number] && (result = take(d)) != CUDA_SUCCESS)
		memory_release(&charges[number]);
	contexts[number] += result == CUDA_SUCCESS;
	pthread_mutex_unlock(&lock);
	return result;
}

static void let_go(CUdevice number)
{
	struct device *d;

	if (device_get(number, &d) != CUDA_SUCCESS)
		return;
	pthread_mutex_lock(&lock);
	if (!--contexts[number]) {
		holder_release(d->gpu, d->mig ? d->instance : HOLDS_GPU, d->mig ? d->compute : mps_client());
		memory_release(&charges[number]);
	}
	pthread_mutex_unlock(&lock);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	REQUIRE(context && !(flags & ~0xffu));
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
	TRY(current->broken);
	return mps_alive();
}

void context_break(CUresult result) { current->broken = result; }

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
