package mig

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Host says where this process sees the node that it runs on.
type Host struct {
	// Root, Proc and Sys are the host's root, procfs and sysfs; Driver and Dev the roots of the driver's
	// files and device nodes, found by themselves when empty.
	Root, Proc, Sys, Driver, Dev string
	// Plugins is kubelet's folder of plugins, where Tessera keeps its records.
	Plugins string
	// Drivers are the names of the DRA drivers whose records count.
	Drivers []string
}

func (h *Host) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&h.Root, "host-root", "/", "where the host's root is seen")
	flags.StringVar(&h.Proc, "proc-root", "/proc", "where the host's /proc is seen")
	flags.StringVar(&h.Sys, "sys-root", "/sys", "where the host's /sys is seen")
	flags.StringVar(&h.Driver, "driver-root", "", "root of the NVIDIA driver; by default /run/nvidia/driver if there is one, else the host's root")
	flags.StringVar(&h.Dev, "dev-root", "", "folder whose dev has the device nodes; by default the driver's root if it has one, else the host's")
	flags.StringVar(&h.Plugins, "plugin-dir", "/var/lib/kubelet/plugins", "kubelet's folder of plugins, where Tessera's records are")
}

// Node is the node that the process runs on: its hardware and what claims hold of it.
type Node interface {
	// Look reads the hardware and then the records. notes are what the user should know.
	Look(ctx context.Context) (m machine, notes []string, err error)
	// Lock keeps the agents of the node from the GPUs, whose names are in ascending order, until unlock.
	Lock(ctx context.Context, gpus []string) (unlock func(), err error)
	// Executor performs changes.
	Executor() executor
	Close()
}

// models returns the PCI ids of the GPUs by name, as sysfs tells them; a GPU that it does not know has 0.
func models(sys string, n gpu.Node) map[string]uint32 {
	ids := map[string]uint32{}
	for _, g := range n.GPUs {
		read := func(name string) uint64 {
			text, err := os.ReadFile(filepath.Join(sys, "bus/pci/devices", g.PCI, name))
			if err != nil {
				return 0
			}
			number, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(string(text)), "0x"), 16, 16)
			if err != nil {
				return 0
			}
			return number
		}
		ids[g.Name()] = uint32(read("device")<<16 | read("vendor"))
	}
	return ids
}
