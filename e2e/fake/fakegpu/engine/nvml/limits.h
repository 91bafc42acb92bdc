#pragma once

#include "session.h"

/* visible_memory returns how much of the memory of the GPU, which is total, this process sees, and what its group has allocated of that. */
unsigned long long visible_memory(const struct target *target, unsigned long long total, unsigned long long *charged);
