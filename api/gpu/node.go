package gpu

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
)

// Node is a snapshot of one node and its GPUs.
type Node struct {
	// Name is the Kubernetes node name.
	Name string `json:"name"`
	// DriverVersion and CUDAVersion are as the driver reports them, such as 580.65.06 and 13.0. They are empty while no driver
	// is loaded.
	DriverVersion string `json:"driverVersion,omitempty"`
	CUDAVersion   string `json:"cudaVersion,omitempty"`
	// GPUs are in order of index: GPUs[i].Index is i.
	GPUs []GPU `json:"gpus"`
}

// GPU is one physical GPU with its current state.
type GPU struct {
	// PCI is the PCI address in the format of sysfs, such as 0000:3b:00.0. It is the identity of a GPU, since it does not
	// change with a reboot, a new enumeration or the MIG mode.
	PCI string `json:"pci"`
	// Index is NVML's index and the position in Node.GPUs. Minor is N in /dev/nvidiaN.
	Index int `json:"index"`
	Minor int `json:"minor"`
	// UUID is NVML's UUID, GPU-…. It is empty for a GPU that was read without its driver (VFIO), or never responded.
	UUID string `json:"uuid"`
	// Product, Brand and Architecture are NVML's names, such as "NVIDIA H100 80GB HBM3", "Nvidia" and "Hopper".
	Product      string `json:"product"`
	Brand        string `json:"brand,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	// ComputeMajor and ComputeMinor are the CUDA compute capability.
	ComputeMajor int `json:"computeMajor"`
	ComputeMinor int `json:"computeMinor"`
	// MemoryBytes and Multiprocessors are those of the whole GPU. Multiprocessors is 0 if the driver does not report it.
	MemoryBytes     uint64 `json:"memoryBytes"`
	Multiprocessors int    `json:"multiprocessors,omitempty"`
	// ShareableBytes is the memory that the claims of a shared shape can have together: what neither the driver nor an MPS daemon takes. 0 means MemoryBytes.
	ShareableBytes uint64 `json:"shareableBytes,omitempty"`
	// Mode is the current MIG mode, Pending the mode after the next reset.
	Mode    Mode `json:"mode"`
	Pending Mode `json:"pending"`
	// MIGFixed reports that the mode cannot be changed without a reset on this machine, as in some virtual machines.
	MIGFixed bool `json:"migFixed,omitempty"`
	// Geometry is nil for a GPU without MIG.
	Geometry *Geometry `json:"geometry,omitempty"`
	// Instances are the existing MIG devices, in order of start.
	Instances []Instance `json:"instances,omitempty"`
	// Withheld are memory slices that cannot be allocated (Occupancy.Withhold).
	Withheld Mask `json:"withheld,omitempty"`
	// ECC reports whether ECC is enabled; nil if the GPU has no ECC.
	ECC *bool `json:"ecc,omitempty"`
	// NUMA is the NUMA node; negative if the platform has none.
	NUMA int `json:"numa"`
	// PCIeRoot is the PCIe root complex, such as pci0000:3a; empty if unknown.
	PCIeRoot string `json:"pcieRoot,omitempty"`
	// IOMMUGroup is the number of the GPU's IOMMU group, which makes it usable by a virtual machine. It is empty if the GPU has
	// no group or shares it with another device, and whenever the GPU is read through its driver.
	IOMMUGroup string `json:"iommuGroup,omitempty"`
	// Links are the links to all GPUs of the node, by index; LinkSelf at the GPU's index.
	Links []Link `json:"links,omitempty"`
	// Clique identifies the NVLink fabric as clusterUUID.cliqueID; empty without a fabric.
	Clique string `json:"clique,omitempty"`
	// Limiter is how the driver limits the memory that the containers of a claim can allocate; empty if it cannot.
	Limiter Limiter `json:"limiter,omitempty"`
	// Lost reports that the GPU does not respond; the fields above have the last known values. A GPU that never responded has
	// no UUID.
	Lost bool `json:"lost,omitempty"`
	// Faults are the faults in effect with severity Warning or higher, the most severe first.
	Faults []Fault `json:"faults,omitempty"`
	// Held, if not empty, is the reason why the GPU is out of service for remediation, such as "XID 48". New claims are not
	// allocated on it.
	Held string `json:"held,omitempty"`
	// Maintenance, if not empty, is the operation for which all GPUs of the node are out of service. New claims are not allocated on them.
	Maintenance string `json:"maintenance,omitempty"`
}

// Name returns the GPU's name in all Kubernetes objects and messages: "gpu-" and the PCI address in lower case with dashes. It
// is an identifier that must not be parsed.
func (g GPU) Name() string {
	return "gpu-" + strings.Map(func(r rune) rune {
		if r == ':' || r == '.' {
			return '-'
		}
		return unicode.ToLower(r)
	}, g.PCI)
}

// daemonBytes is what is kept free for an MPS daemon: an idle server of driver 580 has 36 MiB of an A100.
const daemonBytes = 64 << 20

// ShareableOf returns the memory that the claims of a shared shape can have together, of a GPU with the total of which the driver reserves a part, in bytes;
// 0 if nothing is left.
func ShareableOf(total, reserved uint64) uint64 {
	if reserved > total || total-reserved < daemonBytes {
		return 0
	}
	return total - reserved - daemonBytes
}

// Shareable returns the memory that the claims of a shared shape can have together, in bytes.
func (g GPU) Shareable() uint64 { return cmp.Or(g.ShareableBytes, g.MemoryBytes) }

// TogglesMIG reports whether the MIG mode can change without a reset of the GPU: on Hopper and later, where the machine permits
// it. Source: NVIDIA MIG User Guide.
func (g GPU) TogglesMIG() bool { return g.Geometry.Slices() > 0 && g.ComputeMajor >= 9 && !g.MIGFixed }

// Find returns the GPU with the name (GPU.Name), or an error.
func (n Node) Find(name string) (GPU, error) {
	for _, g := range n.GPUs {
		if g.Name() == name {
			return g, nil
		}
	}
	return GPU{}, fmt.Errorf("GPU %s: not on node %s", name, n.Name)
}
