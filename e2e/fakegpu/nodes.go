package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Majors of the device nodes: local numbers that no driver is ever given, so that on a machine with
// real GPUs nothing real is opened (NVIDIA's own is 195).
const (
	majorGPU  = 120
	majorUVM  = 121
	majorCaps = 122
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

// makeNodes makes the device nodes that a driver and nvidia-modprobe leave behind.
func makeNodes(dir string, gpus int) error {
	nodes := []node{
		{"nvidiactl", majorGPU, 255, 0o666},
		{"nvidia-modeset", majorGPU, 254, 0o666},
		{"nvidia-uvm", majorUVM, 0, 0o666},
		{"nvidia-uvm-tools", majorUVM, 1, 0o666},
		{"nvidia-caps/" + capabilityName(1), majorCaps, 1, 0o400},
		{"nvidia-caps/" + capabilityName(2), majorCaps, 2, 0o444},
	}
	for i := range gpus {
		nodes = append(nodes, node{fmt.Sprintf("nvidia%d", i), majorGPU, uint32(i), 0o666})
	}
	for _, n := range nodes {
		if err := n.make(filepath.Join(DevRoot(dir), "dev")); err != nil {
			return err
		}
	}
	return nil
}

func capabilityName(minor int) string { return fmt.Sprintf("nvidia-cap%d", minor) }
