/* Faults that somebody injected through the state. */
#pragma once
#include "session.h"

/* fault_apply waits as long as the function is slow, and returns what it must fail with. */
nvmlReturn_t fault_apply(const char *function);

/* pause_ms sleeps, no matter which signals arrive. */
void pause_ms(uint32_t ms);
