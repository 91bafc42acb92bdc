package gpu

import (
	"fmt"
	"strings"
	"unicode"
)

// Node is one machine as its GPUs present it: a snapshot, in order of GPU index.
type Node struct {
	// Name is the Kubernetes node name.
	Name string `json:"name"`
	// DriverVersion and CUDAVersion are the driver's texts, such as 580.65.06 and 13.0; empty while
	// the node has no driver.
	DriverVersion string `json:"driverVersion,omitempty"`
	CUDAVersion   string `json:"cudaVersion,omitempty"`
	// GPUs are the node's GPUs by index.
	GPUs []GPU `json:"gpus"`
}

// GPU is one physical GPU.
type GPU struct {
	// PCI is the address as sysfs writes it: 0000:3b:00.0. It is the identity that survives reboot,
	// re-enumeration and MIG mode changes.
	PCI string `json:"pci"`
	// Index is NVML's index and the position in Node.GPUs; Minor is N in /dev/nvidiaN.
	Index int `json:"index"`
	Minor int `json:"minor"`
	// UUID is GPU-…; empty where the GPU is read without its driver, for virtual machines.
	UUID string `json:"uuid"`
	// Product, Brand and Architecture are NVML's names, such as "NVIDIA H100 80GB HBM3", "Nvidia",
	// "Hopper".
	Product      string `json:"product"`
	Brand        string `json:"brand,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	// ComputeMajor and ComputeMinor are the CUDA compute capability.
	ComputeMajor int `json:"computeMajor"`
	ComputeMinor int `json:"computeMinor"`
	// MemoryBytes and Multiprocessors are the totals of the whole GPU; Multiprocessors is 0 where the
	// driver does not tell.
	MemoryBytes     uint64 `json:"memoryBytes"`
	Multiprocessors int    `json:"multiprocessors,omitempty"`
	// Mode is the MIG mode now, Pending the one after the next reset.
	Mode    Mode `json:"mode"`
	Pending Mode `json:"pending"`
	// Geometry is nil on a GPU without MIG.
	Geometry *Geometry `json:"geometry,omitempty"`
	// Instances are the MIG devices that exist, ordered by start.
	Instances []Instance `json:"instances,omitempty"`
	// Withheld are the memory slices that nobody may take (see Occupancy.Withhold).
	Withheld Mask `json:"withheld,omitempty"`
	// ECC reports whether ECC is on; nil where the GPU has none.
	ECC *bool `json:"ecc,omitempty"`
	// NUMA is the NUMA node; negative when the platform has none.
	NUMA int `json:"numa"`
	// PCIeRoot is the PCIe root complex, such as pci0000:3a; empty when unknown.
	PCIeRoot string `json:"pcieRoot,omitempty"`
	// IOMMUGroup is the number of the GPU's IOMMU group, with which it can be given to a virtual machine; empty where it has none,
	// or shares it with another card, and wherever the GPU is read through its driver.
	IOMMUGroup string `json:"iommuGroup,omitempty"`
	// Links holds the relation to every GPU of the node by index, LinkSelf at its own.
	Links []Link `json:"links,omitempty"`
	// Clique is clusterUUID.cliqueID of the NVLink fabric; empty without one.
	Clique string `json:"clique,omitempty"`
	// Lost reports that the GPU does not answer any more; the fields above are the last known ones. One
	// that never answered has no UUID.
	Lost bool `json:"lost,omitempty"`
	// Faults are what is wrong with the GPU now, Warning or worse, the worst first.
	Faults []Fault `json:"faults,omitempty"`
	// Held, when set, says for which remedy the GPU is out of service: no new claims.
	Held string `json:"held,omitempty"`
}

// Name returns the GPU's name in every object that Tessera writes: gpu- and the PCI address with
// dashes. It is a label: no code parses it.
func (g GPU) Name() string {
	return "gpu-" + strings.Map(func(r rune) rune {
		if r == ':' || r == '.' {
			return '-'
		}
		return unicode.ToLower(r)
	}, g.PCI)
}

// TogglesMIG reports whether the MIG mode changes without a reset of the GPU: on Hopper and newer.
func (g GPU) TogglesMIG() bool { return g.Geometry.Slices() > 0 && g.ComputeMajor >= 9 }

// Find returns the GPU with the name.
func (n Node) Find(name string) (GPU, error) {
	for _, g := range n.GPUs {
		if g.Name() == name {
			return g, nil
		}
	}
	return GPU{}, fmt.Errorf("GPU %s: not on node %s", name, n.Name)
}
