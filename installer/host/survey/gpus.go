package survey

import (
	"slices"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/internal/host/pci"
)

// GPUs returns NVIDIA's display (class 0300) and 3D (0302) controllers on the PCI bus, by address. It needs no driver.
func GPUs(r host.Roots) ([]pci.Function, error) { return pci.Sysfs(r.Sys).GPUs() }

// Mode returns compute for 3D controllers, graphics for display controllers, and unknown without GPUs or for both, as GPU Feature Discovery does
// (k8s-device-plugin internal/lm/nvml.go, getModeForClasses).
func Mode(gpus []pci.Function) string {
	displays := 0
	for _, gpu := range gpus {
		if gpu.Display {
			displays++
		}
	}
	switch {
	case len(gpus) == 0 || displays != 0 && displays != len(gpus):
		return "unknown"
	case displays > 0:
		return "graphics"
	}
	return "compute"
}

// Devices returns the device IDs of the GPUs, deduplicated and sorted.
func Devices(gpus []pci.Function) []string {
	var ids []string
	for _, gpu := range gpus {
		ids = append(ids, gpu.Device)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
