// Package vfio gives GPUs to virtual machines: it takes a GPU, with the other functions of the same card in its IOMMU group, from its driver
// and binds it to vfio-pci, and gives it back. A virtual machine gets the whole group or nothing, since the IOMMU cannot tell its members apart.
//
// Bind loads the module vfio-pci where it is not loaded. For every device of the group, the GPU last, it
//
//  1. writes vfio-pci into driver_override, so that no other driver takes the device (Linux 3.16 and newer);
//  2. writes the address into unbind of the driver that has it, if one has;
//  3. writes the address into drivers_probe of the PCI bus;
//  4. sees for itself that the link driver leads to vfio-pci now.
//
// Last it waits for nothing and sees that the group's node /dev/vfio/<group> is there. Unbind is the same way back, with an empty driver_override. Each step
// may fail, and each may be the last before a crash: whoever calls again, Bind or Unbind, starts from what sysfs says and not from memory.
//
// The kernel lets nobody take a device from vfio-pci, nor from NVIDIA's driver, while it is used: the write waits, for hours when need be. Whether a
// device is used is therefore asked first, and that is gpu.ErrBusy. A use that begins in between is waited for until ctx ends.
package vfio
