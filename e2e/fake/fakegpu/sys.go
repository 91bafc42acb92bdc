package fakegpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// writeSys writes the PCI devices as in sysfs: a folder per device below its root complex, and a link to
// it by address.
func writeSys(dir string, m catalog.Machine) error {
	root := SysRoot(dir)
	byAddress := filepath.Join(root, "bus/pci/devices")
	if err := os.MkdirAll(byAddress, 0o755); err != nil {
		return err
	}
	for _, slot := range m.GPUs {
		model, err := catalog.FindModel(slot.Model)
		if err != nil {
			return err
		}
		folder := pciFolder(slot)
		if err := writeFiles(filepath.Join(root, folder), pciFiles(slot, model)); err != nil {
			return err
		}
		link := filepath.Join(byAddress, slot.PCI)
		if err := os.Symlink(filepath.Join("../../..", folder), link); err != nil {
			return err
		}
	}
	return nil
}

// pciFolder is devices/<root complex>/<root port>[/<switch>]/<address>.
func pciFolder(slot catalog.Slot) string {
	port := strings.TrimPrefix(slot.Root, "pci") + ":01.0"
	return filepath.Join("devices", slot.Root, port, slot.Switch, slot.PCI)
}

func pciFiles(slot catalog.Slot, model catalog.Model) map[string]string {
	first, last := cpusOf(slot.NUMA)
	return map[string]string{
		"vendor":           "0x10de\n",
		"device":           fmt.Sprintf("0x%04x\n", uint32(model.PCIDevice)>>16),
		"subsystem_vendor": "0x10de\n",
		"subsystem_device": fmt.Sprintf("0x%04x\n", uint32(model.PCISubsystem)>>16),
		"class":            "0x030200\n",
		"numa_node":        fmt.Sprintf("%d\n", slot.NUMA),
		"local_cpulist":    fmt.Sprintf("%d-%d\n", first, last),
		"config":           configSpace(model),
	}
}

// configSize is the length of a function's configuration space that every user may read.
const configSize = 64

// configSpace is the header of a GPU's configuration space: vendor, device, and zeros elsewhere.
func configSpace(model catalog.Model) string {
	header := binary.LittleEndian.AppendUint16(nil, 0x10de)
	header = binary.LittleEndian.AppendUint16(header, uint16(model.PCIDevice>>16))
	return string(header) + strings.Repeat("\x00", configSize-len(header))
}

// deafSpace is what the bus reads of a GPU that does not respond.
func deafSpace() string { return strings.Repeat("\xff", configSize) }

// showOnBus writes the configuration spaces for the current presence of the GPUs. A machine of
// InstallDriver has no bus.
func showOnBus(dir string) error {
	machine, err := readMachine(dir)
	if err != nil {
		return err
	}
	return withState(dir, func(s *session) error {
		l := s.current()
		for i, slot := range machine.GPUs {
			model, err := catalog.FindModel(slot.Model)
			if err != nil {
				return err
			}
			space := configSpace(model)
			if l.GPUs[i].Lost == fallenOff {
				space = deafSpace()
			}
			path := filepath.Join(SysRoot(dir), pciFolder(slot), "config")
			if now, err := os.ReadFile(path); errors.Is(err, os.ErrNotExist) || string(now) == space {
				continue
			}
			if err := os.WriteFile(path, []byte(space), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}
