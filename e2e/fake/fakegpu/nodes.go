package fakegpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Majors of the device nodes: local numbers that are never assigned to a driver, so that on a
// machine with real GPUs no real device is opened (NVIDIA's own is 195).
const (
	majorGPU  = 120
	majorUVM  = 121
	majorCaps = 122 // and the next one: the channels of IMEX
	majorFS   = 124
	majorGDR  = 125
)

// node is a character device.
type node struct {
	path         string
	major, minor uint32
	mode         os.FileMode
}

// make makes the device below a folder.
func (n node) make(folder string) error {
	path := filepath.Join(folder, n.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFCHR, int(unix.Mkdev(n.major, n.minor))); err != nil {
		return fmt.Errorf("mknod %s: %w", path, err)
	}
	return os.Chmod(path, n.mode)
}

// MakeNodes makes the device nodes of the GPUs and of nvidia, nvidia-uvm and nvidia-modeset, as nvidia-modprobe(1), the rules of udev of a
// distribution or the toolkit container of NVIDIA (toolkit.go:520) do. No module makes them, and a driver container has nvidia-modprobe not.
func MakeNodes(dir string) error {
	machine, err := readMachine(dir)
	if err != nil {
		return err
	}
	nodes := []node{
		{"nvidiactl", majorGPU, 255, 0o666},
		{"nvidia-modeset", majorGPU, 254, 0o666},
		{"nvidia-uvm", majorUVM, 0, 0o666},
		{"nvidia-uvm-tools", majorUVM, 1, 0o666},
		{"nvidia-caps/" + capabilityName(1), majorCaps, 1, 0o400},
		{"nvidia-caps/" + capabilityName(2), majorCaps, 2, 0o444},
	}
	for i := range machine.GPUs {
		nodes = append(nodes, node{fmt.Sprintf("nvidia%d", i), majorGPU, uint32(i), 0o666})
	}
	dev := filepath.Join(DevRoot(dir), "dev")
	for _, n := range nodes {
		if _, err := os.Lstat(filepath.Join(dev, n.path)); err == nil {
			continue
		}
		if err := n.make(dev); err != nil {
			return fmt.Errorf("make device nodes under %s: %w", dir, err)
		}
	}
	return nil
}

// kernelNodes are the device nodes that the kernel creates (devtmpfs) when it loads a module. The modules of the driver itself have none:
// they register their numbers only (nvidia/nv.c of the open kernel modules).
func kernelNodes(module Module) []node {
	switch module {
	case GDS:
		var nodes []node
		for i := range fsNodes {
			nodes = append(nodes, node{fmt.Sprintf("nvidia-fs%d", i), majorFS, uint32(i), 0o666})
		}
		return nodes
	case GDRCopy:
		return []node{{"gdrdrv", majorGDR, 0, 0o666}}
	case NVIDIA, UVM, Modeset, Peermem:
	}
	return nil
}

// fsNodes is the number of device nodes of nvidia-fs.
const fsNodes = 16

// removeNodes removes device nodes; a missing one is no error.
func removeNodes(dir string, nodes []node) error {
	for _, n := range nodes {
		if err := os.Remove(filepath.Join(DevRoot(dir), "dev", n.path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func capabilityName(minor int) string { return fmt.Sprintf("nvidia-cap%d", minor) }
