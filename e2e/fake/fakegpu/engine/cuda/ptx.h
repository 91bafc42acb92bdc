/*
 * PTX: a parser and an interpreter of the part that small programs use. Other text is refused, as the
 * driver's compiler refuses what is wrong. Source: "PTX ISA", chapters 4 (syntax), 5 (state spaces) and 9
 * (instructions).
 */
#pragma once
#include "cuda.h"

struct program;

/* The dimensions of a launch; only x is supported. */
struct launch {
	unsigned blocks, threads;
};

/*
 * program_parse reads a module for a device. The result is a program, and otherwise
 * CUDA_ERROR_INVALID_PTX for text that it does not understand, CUDA_ERROR_UNSUPPORTED_PTX_VERSION for a .version that
 * the driver's CUDA version does not have, and CUDA_ERROR_NO_BINARY_FOR_GPU for a .target above the device.
 */
CUresult program_parse(const char *text, int cuda_version, int compute, struct program **program);
void program_free(struct program *program);

/* program_entry returns the number of an entry, or -1. */
int program_entry(const struct program *program, const char *name);

/* program_run runs every thread of a launch, one after the other, with the values at parameters. */
CUresult program_run(const struct program *program, unsigned entry, struct launch launch, void **parameters);
