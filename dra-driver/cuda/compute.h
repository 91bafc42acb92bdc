#ifndef TESSERA_CUDA_COMPUTE_H
#define TESSERA_CUDA_COMPUTE_H

#include <stddef.h>

// tessera_cuda_failure is the step that failed. code is the CUDA error, or 0 where no call returned one; name is its
// name in cuda.h, and detail what else there is to report.
struct tessera_cuda_failure {
	const char *step;
	int code;
	char name[64];
	char detail[192];
};

// tessera_cuda_compute uses the only CUDA device of this process, which must have the 16 bytes at uuid as its UUID: it
// copies data to the device and back, runs the kernel "tessera_validate" of the PTX text, and compares every byte.
// It returns 0, or -1 with the failure. The library stays loaded; a process calls it once.
int tessera_cuda_compute(const char *library, const char *ptx, const unsigned char *uuid, struct tessera_cuda_failure *failure);

#endif
