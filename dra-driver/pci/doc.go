// Package pci reads the GPUs of a node whose GPUs are passed through to virtual machines: from sysfs, without NVIDIA's
// driver. It replaces dra-driver/nvml there: such a GPU has no MIG devices, no modes and no sensors that the node can
// read.
package pci
