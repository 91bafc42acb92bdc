// Package pci reads the GPUs of a node whose GPUs are for virtual machines: from sysfs, without NVIDIA's driver. It stands in for dra-driver/nvml there:
// such a GPU has no instances, no modes and no sensors that could be read.
package pci
