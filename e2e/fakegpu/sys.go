package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// writeSys writes the PCI devices as sysfs shows them: a folder per device below its root complex,
// and a link to it by address.
func writeSys(dir string, m gputest.Machine) error {
	root := SysRoot(dir)
	byAddress := filepath.Join(root, "bus/pci/devices")
	if err := os.MkdirAll(byAddress, 0o755); err != nil {
		return err
	}
	for _, slot := range m.GPUs {
		model, err := gputest.FindModel(slot.Model)
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
func pciFolder(slot gputest.Slot) string {
	port := strings.TrimPrefix(slot.Root, "pci") + ":01.0"
	return filepath.Join("devices", slot.Root, port, slot.Switch, slot.PCI)
}

func pciFiles(slot gputest.Slot, model gputest.Model) map[string]string {
	first, last := cpusOf(slot.NUMA)
	return map[string]string{
		"vendor":           "0x10de\n",
		"device":           fmt.Sprintf("0x%04x\n", uint32(model.PCIDevice)>>16),
		"subsystem_vendor": "0x10de\n",
		"subsystem_device": fmt.Sprintf("0x%04x\n", uint32(model.PCISubsystem)>>16),
		"class":            "0x030200\n",
		"numa_node":        fmt.Sprintf("%d\n", slot.NUMA),
		"local_cpulist":    fmt.Sprintf("%d-%d\n", first, last),
	}
}
