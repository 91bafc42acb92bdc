// Package pci reads NVIDIA's GPUs on the PCI bus from sysfs. No driver is needed for that.
package pci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// nvidia is NVIDIA's PCI vendor ID.
const nvidia = "0x10de"

// Sysfs is the folder at which the host's sysfs is mounted. Its methods read the bus at each call and are safe for concurrent use.
type Sysfs string

// Function is a PCI function.
type Function struct {
	// Address is domain:bus:device.function, such as 0000:17:00.0.
	Address string
	// Device is the PCI device ID without 0x, such as 2330.
	Device string
	// Display is whether the function is a display controller (class 0300) and not a 3D controller.
	Display bool
}

// GPUs returns NVIDIA's display (class 0300) and 3D (0302) controllers in ascending order of address. A machine without PCI has none. A
// function that is removed from the bus meanwhile is left out; any other attribute that cannot be read is an error.
func (s Sysfs) GPUs() ([]Function, error) {
	addresses, err := s.Addresses()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var gpus []Function
	for _, address := range addresses {
		gpu, err := s.gpu(address)
		if err != nil {
			return nil, err
		}
		if gpu.Device != "" {
			gpus = append(gpus, gpu)
		}
	}
	return gpus, nil
}

// gpu returns a GPU; without a device ID for any other function and for one that was removed.
func (s Sysfs) gpu(address string) (Function, error) {
	var values [3]string
	for i, name := range []string{"vendor", "class", "device"} {
		value, err := s.Attribute(address, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			return Function{}, nil
		}
		if err != nil {
			return Function{}, fmt.Errorf("read PCI device %s: %w", address, err)
		}
		values[i] = value
		if i == 0 && value != nvidia {
			return Function{}, nil
		}
	}
	display := strings.HasPrefix(values[1], "0x0300")
	if !display && !strings.HasPrefix(values[1], "0x0302") {
		return Function{}, nil
	}
	return Function{Address: address, Device: strings.TrimPrefix(values[2], "0x"), Display: display}, nil
}

// Addresses returns the addresses of all PCI functions in ascending order. The error wraps fs.ErrNotExist on a machine without PCI.
func (s Sysfs) Addresses() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(string(s), "bus/pci/devices")) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("read the PCI bus: %w", err)
	}
	var addresses []string
	for _, entry := range entries {
		addresses = append(addresses, entry.Name())
	}
	return addresses, nil
}

// Attribute returns the content of a function's file without surrounding white space.
func (s Sysfs) Attribute(address, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(s.folder(address), name))
	return strings.TrimSpace(string(text)), err
}

// Config returns the configuration space of the function as far as this process may read it.
func (s Sysfs) Config(address string) ([]byte, error) {
	return os.ReadFile(filepath.Join(s.folder(address), "config"))
}

// IsNVIDIA reports whether NVIDIA made the function. A vendor that cannot be read counts as NVIDIA.
func (s Sysfs) IsNVIDIA(address string) bool {
	vendor, err := s.Attribute(address, "vendor")
	return err != nil || vendor == "" || vendor == nvidia
}

// Root returns the PCIe root complex above the function, such as pci0000:3a; empty if the platform does not show one. The kernel's link to
// a function's folder names every bridge on the way: ../../../devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0.
func (s Sysfs) Root(address string) string {
	target, err := os.Readlink(s.folder(address))
	if err != nil {
		return ""
	}
	for element := range strings.SplitSeq(filepath.ToSlash(target), "/") {
		if strings.HasPrefix(element, "pci") && strings.Contains(element, ":") {
			return element
		}
	}
	return ""
}

func (s Sysfs) folder(address string) string {
	return filepath.Join(string(s), "bus/pci/devices", address)
}
