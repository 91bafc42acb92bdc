package nvml

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/pci"
)

// sysfs is the root of the host's sysfs. An attribute that cannot be read is treated like one that the platform does not
// have.
type sysfs string

// gpus returns the PCI addresses of NVIDIA's display functions in ascending order, with or without a driver; none if the
// bus cannot be read.
func (s sysfs) gpus() []string {
	functions, err := pci.Sysfs(s).GPUs()
	if err != nil {
		return nil
	}
	var addresses []string
	for _, function := range functions {
		addresses = append(addresses, function.Address)
	}
	return addresses
}

// present reports whether an NVIDIA device is at the GPU's address, with or without a driver; true if the bus cannot be
// read.
func (s sysfs) present(gpuName string) bool {
	addresses, err := pci.Sysfs(s).Addresses()
	if err != nil {
		return true
	}
	for _, address := range addresses {
		if (gpu.GPU{PCI: address}).Name() == gpuName {
			return pci.Sysfs(s).IsNVIDIA(address)
		}
	}
	return false
}

// numa returns the NUMA node of the PCI function; -1 if the platform reports none.
func (s sysfs) numa(address string) int {
	number, err := strconv.Atoi(s.attribute(address, "numa_node"))
	if err != nil {
		return -1
	}
	return number
}

// root returns the PCIe root complex above the PCI function, such as pci0000:3a; empty if the platform does not report
// one.
func (s sysfs) root(address string) string { return pci.Sysfs(s).Root(address) }

// module returns the version of the loaded NVIDIA kernel module; empty if it reports none.
func (s sysfs) module() string { return s.read("module/nvidia/version") }

func (s sysfs) attribute(address, name string) string {
	return s.read(filepath.Join("bus/pci/devices", address, name))
}

func (s sysfs) read(path string) string {
	content, err := os.ReadFile(filepath.Join(string(s), path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}
