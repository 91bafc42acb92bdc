package survey

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
)

// nvidia is NVIDIA's PCI vendor ID.
const nvidia = "0x10de"

// PCI is a GPU as the bus shows it.
type PCI struct {
	// Address is domain:bus:device.function, such as 0000:17:00.0; Device the PCI device ID without 0x, such as 2330.
	Address, Device string
}

// GPUs returns NVIDIA's display (class 0300) and 3D (0302) controllers on the PCI bus, by address. They need no driver to be seen.
func GPUs(r host.Roots) ([]PCI, error) {
	bus := filepath.Join(r.Sys, "bus/pci/devices")
	entries, err := os.ReadDir(bus)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a machine without PCI
	}
	if err != nil {
		return nil, fmt.Errorf("read the PCI bus: %w", err)
	}
	var gpus []PCI
	for _, entry := range entries {
		gpu, found, err := readPCI(filepath.Join(bus, entry.Name()))
		if err != nil {
			return nil, err
		}
		if found {
			gpus = append(gpus, gpu)
		}
	}
	slices.SortFunc(gpus, func(a, b PCI) int { return strings.Compare(a.Address, b.Address) })
	return gpus, nil
}

// readPCI reads one device. One that is gone meanwhile is no GPU.
func readPCI(folder string) (gpu PCI, found bool, err error) {
	var values [3]string
	for i, name := range []string{"vendor", "class", "device"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			return PCI{}, false, nil
		}
		if err != nil {
			return PCI{}, false, fmt.Errorf("read PCI device %s: %w", filepath.Base(folder), err)
		}
		values[i] = strings.TrimSpace(string(text))
		if i == 0 && values[0] != nvidia {
			return PCI{}, false, nil
		}
	}
	if !strings.HasPrefix(values[1], "0x0300") && !strings.HasPrefix(values[1], "0x0302") {
		return PCI{}, false, nil
	}
	return PCI{Address: filepath.Base(folder), Device: strings.TrimPrefix(values[2], "0x")}, true, nil
}

// Devices returns the device IDs of the GPUs, each once, in order.
func Devices(gpus []PCI) []string {
	var ids []string
	for _, gpu := range gpus {
		ids = append(ids, gpu.Device)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
