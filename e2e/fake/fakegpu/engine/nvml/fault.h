/* Faults that are injected through the state. */
#pragma once
#include "session.h"

/* fault_apply waits for the delay of the function, and returns the code with which it must fail. */
nvmlReturn_t fault_apply(const char *function);

/* pause_ms sleeps, no matter which signals arrive. */
void pause_ms(uint32_t ms);
