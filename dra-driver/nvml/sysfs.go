package nvml

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// sysfs is the root under which the host's sysfs is seen. What cannot be read is answered like what
// the platform does not have.
type sysfs string

// gpus returns the PCI addresses of NVIDIA's display functions in ascending order, driver or not.
func (s sysfs) gpus() []string {
	entries, err := os.ReadDir(filepath.Join(string(s), "bus/pci/devices"))
	if err != nil {
		return nil
	}
	var addresses []string
	for _, entry := range entries {
		class := s.attribute(entry.Name(), "class")
		display := strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")
		if display && s.attribute(entry.Name(), "vendor") == "0x10de" {
			addresses = append(addresses, entry.Name())
		}
	}
	return addresses
}

// present reports whether one of NVIDIA's devices is in the GPU's place, driver or not. In doubt one is.
func (s sysfs) present(gpuName string) bool {
	entries, err := os.ReadDir(filepath.Join(string(s), "bus/pci/devices"))
	if err != nil {
		return true
	}
	for _, entry := range entries {
		if (gpu.GPU{PCI: entry.Name()}).Name() == gpuName {
			vendor := s.attribute(entry.Name(), "vendor")
			return vendor == "" || vendor == "0x10de"
		}
	}
	return false
}

// numa returns the NUMA node of the PCI function; -1 when the platform has none.
func (s sysfs) numa(address string) int {
	number, err := strconv.Atoi(s.attribute(address, "numa_node"))
	if err != nil {
		return -1
	}
	return number
}

// root returns the PCIe root complex above the PCI function, such as pci0000:3a. The kernel's link to
// a function's folder spells out every bridge on the way.
func (s sysfs) root(address string) string {
	target, err := os.Readlink(s.device(address))
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

// module returns the version of the loaded NVIDIA kernel module; empty when it says none.
func (s sysfs) module() string { return s.read("module/nvidia/version") }

func (s sysfs) attribute(address, name string) string {
	return s.read(filepath.Join("bus/pci/devices", address, name))
}

func (s sysfs) device(address string) string {
	return filepath.Join(string(s), "bus/pci/devices", address)
}

func (s sysfs) read(path string) string {
	content, err := os.ReadFile(filepath.Join(string(s), path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}
