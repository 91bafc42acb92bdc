#include "state.h"
__attribute__((visibility("default"))) int cuInit(unsigned flags) { (void)flags; return state_open(); }
