package survey

import (
	"slices"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/internal/host/pci"
)

// GPUs returns NVIDIA's display (class 0300) and 3D (0302) controllers on the PCI bus, by address. It needs no driver.
func GPUs(r host.Roots) ([]pci.Function, error) { return pci.Sysfs(r.Sys).GPUs() }

// Devices returns the device IDs of the GPUs, deduplicated and sorted.
func Devices(gpus []pci.Function) []string {
	var ids []string
	for _, gpu := range gpus {
		ids = append(ids, gpu.Device)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
