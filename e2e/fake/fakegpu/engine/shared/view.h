/*
 * What this process may see. Who can write the state is the host and sees everything. A container
 * sees a GPU when its device node is there with the right numbers and the device cgroup lets it be
 * opened, and a MIG device when that is so for both its capability nodes as well. No driver stands
 * behind the numbers, so an open that is let through ends in ENXIO.
 */
#pragma once
#include <stdbool.h>

bool visible_control(void);
bool visible_uvm(void);
bool visible_gpu(unsigned gpu);
bool visible_instance(unsigned gpu, unsigned instance, unsigned compute);
