/*
 * The devices that this process sees. A process that can write the state is on the host and
 * sees everything; with FAKE_NVML_DEV it needs the nodes of nvidiactl, nvidia-uvm and the GPUs
 * there, as on hardware, but no capability nodes. A container sees a GPU when its device node exists with the right numbers
 * and the device cgroup allows opening it, and a MIG device when that holds for both its
 * capability nodes as well. An allowed open fails with ENXIO where no driver is registered for
 * the numbers, and succeeds where the modules of e2e/fake/modules are loaded.
 */
#pragma once
#include <stdbool.h>

bool visible_control(void);
bool visible_uvm(void);
bool visible_gpu(unsigned gpu);
bool visible_instance(unsigned gpu, unsigned instance, unsigned compute);
