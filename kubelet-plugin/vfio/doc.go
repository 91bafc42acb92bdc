// Package vfio prepares GPUs for passthrough to virtual machines: it unbinds a GPU, with the other functions of the same
// card in its IOMMU group, from its driver, binds it to vfio-pci, and reverts that. A virtual machine gets the whole
// group or nothing, because the IOMMU cannot isolate its members from each other.
//
// Bind loads the module vfio-pci if it is not loaded. For every device of the group, the GPU last, it
//
//  1. writes vfio-pci into driver_override, so that no other driver binds the device (Linux 3.16 and newer);
//  2. writes the address into unbind of the device's driver, if it has one;
//  3. writes the address into drivers_probe of the PCI bus;
//  4. verifies that the link driver leads to vfio-pci now.
//
// Finally it checks, without waiting, that the group's node /dev/vfio/<group> exists. Unbind does the same in reverse,
// with an empty driver_override. Each step may fail, and a crash may follow each: the next call of Bind or Unbind starts
// from the state of sysfs and not from memory.
//
// The kernel does not unbind a device from vfio-pci, or from NVIDIA's driver, while it is in use: the write blocks,
// possibly for hours. The use is therefore checked first, and returned as gpu.ErrBusy. If a use starts between the check
// and the write, the write is awaited until ctx ends.
package vfio
