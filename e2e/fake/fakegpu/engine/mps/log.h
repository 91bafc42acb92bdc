/* The logs of the control daemon and its servers, in CUDA_MPS_LOG_DIRECTORY. */
#pragma once
#include <stdbool.h>

/* log_open begins a log; loud lets every line go to standard error as well. */
void log_open(const char *name, const char *who, bool loud);
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
