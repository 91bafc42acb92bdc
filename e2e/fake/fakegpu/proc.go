package fakegpu

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// The numbers of the driver's table of MIG capabilities: it lists every possible GPU instance and compute instance.
const (
	capabilityGPUs = 32
	firstInstance  = 3 // after config and monitor
)

// writeKernelProc writes the kernel's files under /proc without a driver.
func writeKernelProc(dir string, spec Spec) error {
	return writeFiles(ProcRoot(dir), map[string]string{
		"sys/kernel/osrelease":      spec.Kernel + "\n",
		"sys/kernel/random/boot_id": newBootID(),
		"devices":                   procDevices("", nil),
		"modules":                   procModules(nil),
	})
}

// DriverProc returns the files of the loaded driver by their paths below /proc.
func DriverProc(spec Spec) (map[string]string, error) {
	spec = spec.withDefaults()
	machine, err := catalog.FindMachine(spec.Machine)
	if err != nil {
		return nil, err
	}
	return driverProc(spec, machine)
}

// writeDriverProc writes the files of the loaded driver.
func writeDriverProc(dir string, spec Spec, m catalog.Machine) error {
	files, err := driverProc(spec, m)
	if err != nil {
		return err
	}
	return writeFiles(ProcRoot(dir), files)
}

func driverProc(spec Spec, m catalog.Machine) (map[string]string, error) {
	files := map[string]string{
		"driver/nvidia/version":                       fmt.Sprintf("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (fake)\n", spec.DriverVersion),
		"driver/nvidia/params":                        "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
		"driver/nvidia/capabilities/mig/config":       capabilityFile(1, 0o400),
		"driver/nvidia/capabilities/mig/monitor":      capabilityFile(2, 0o444),
		"driver/nvidia/capabilities/fabric-imex-mgmt": capabilityFile(capabilityMinor(capabilityGPUs, 0), 0o400),
		"driver/nvidia-caps/mig-minors":               migMinors(),
	}
	for i, slot := range m.GPUs {
		model, err := catalog.FindModel(slot.Model)
		if err != nil {
			return nil, err
		}
		files["driver/nvidia/gpus/"+slot.PCI+"/information"] = fmt.Sprintf(
			"Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t 96.00.00.00.00\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"+
				"DMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
			model.Product, 64+i, catalog.UUID(spec.Node, i), slot.PCI, i, spec.DriverVersion)
	}
	return files, nil
}

// writeModules writes the kernel's files about the modules of a machine that is not bare; without a driver version no module is loaded.
func writeModules(dir, version string) error {
	loaded := loadedWithDriver()
	if version == "" {
		loaded = nil
	}
	return writeFiles(ProcRoot(dir), map[string]string{"devices": procDevices(version, loaded), "modules": procModules(loaded)})
}

// writeFiles writes texts by their path under root.
func writeFiles(root string, files map[string]string) error {
	for path, text := range files {
		if err := writeFile(filepath.Join(root, path), text); err != nil {
			return err
		}
	}
	return nil
}

// capabilityMinor is the minor number of a GPU instance's capability; those of its compute instances
// follow it.
func capabilityMinor(gpu, instance int) int {
	return firstInstance + gpu*maxInstances*(1+maxComputes) + instance*(1+maxComputes)
}

func capabilityFile(minor, mode int) string {
	return fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor, mode)
}

func migMinors() string {
	var b strings.Builder
	b.WriteString("config 1\nmonitor 2\n")
	for gpu := range capabilityGPUs {
		for instance := range maxInstances {
			minor := capabilityMinor(gpu, instance)
			fmt.Fprintf(&b, "gpu%d/gi%d/access %d\n", gpu, instance, minor)
			for compute := range maxComputes {
				fmt.Fprintf(&b, "gpu%d/gi%d/ci%d/access %d\n", gpu, instance, compute, minor+1+compute)
			}
		}
	}
	return b.String()
}

// procDevices is /proc/devices of a machine with these modules of a driver version.
func procDevices(version string, loaded []Module) string {
	characters := "  1 mem\n  5 /dev/tty\n 10 misc\n"
	if slices.Contains(loaded, NVIDIA) {
		characters += nvidiaDevices(version, slices.Contains(loaded, Modeset))
	}
	if slices.Contains(loaded, UVM) {
		characters += fmt.Sprintf("%d nvidia-uvm\n", majorUVM)
	}
	if slices.Contains(loaded, NVIDIA) {
		characters += fmt.Sprintf("%d nvidia-caps\n%d nvidia-caps-imex-channels\n", majorCaps, majorCaps+1)
	}
	if slices.Contains(loaded, GDS) {
		characters += fmt.Sprintf("%d nvidia-fs\n", majorFS)
	}
	if slices.Contains(loaded, GDRCopy) {
		characters += fmt.Sprintf("%d gdrdrv\n", majorGDR)
	}
	return "Character devices:\n" + characters + "\nBlock devices:\n259 blkext\n"
}

// nvidiaDevices are the entries of the major number that GPUs, nvidiactl and nvidia-modeset share. Drivers before 550 have one entry for all.
func nvidiaDevices(version string, modeset bool) string {
	if b, ok := branchOf(version); ok && b.last < 550 {
		return fmt.Sprintf("%d nvidia-frontend\n", majorGPU)
	}
	text := fmt.Sprintf("%d nvidia\n", majorGPU)
	if modeset {
		text += fmt.Sprintf("%d nvidia-modeset\n", majorGPU)
	}
	return text + fmt.Sprintf("%d nvidiactl\n", majorGPU)
}
