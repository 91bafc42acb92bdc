/* The logs of the control daemon and its servers. */
#pragma once
#include <stdbool.h>

/* log_open opens a log in CUDA_MPS_LOG_DIRECTORY; loud is that of a daemon in the foreground: standard error. */
void log_open(const char *name, const char *who, bool loud);
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
