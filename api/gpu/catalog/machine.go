package catalog

import (
	"crypto/sha1"
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The driver of every node in the catalogue.
const (
	DriverVersion = "580.65.06"
	CUDAVersion   = "13.0"
)

// Machine is the GPU hardware of one node.
type Machine struct {
	// Name is the key in the catalogue, such as h100x8.
	Name string `json:"name"`
	// NVSwitch reports that the NVLinks are connected to switches and not to the peer GPUs.
	NVSwitch bool `json:"nvswitch"`
	// Cluster and Clique identify the NVLink fabric across machines; Cluster is empty without a fabric.
	Cluster string `json:"cluster"`
	Clique  int    `json:"clique"`
	// NVLinks has a row and a column for each GPU: the number of NVLinks between the two as 1-9 and a-i for 10-18, a dot for
	// none.
	NVLinks []string `json:"nvlinks"`
	// GPUs are the GPUs by index.
	GPUs []Slot `json:"gpus"`
}

// Slot is a GPU at its position in a machine.
type Slot struct {
	// Model is the name of the model (Model.Name).
	Model string `json:"model"`
	// PCI is the PCI address, Root the root complex, and Switch the PCIe switch between them; empty without one.
	PCI    string `json:"pci"`
	Root   string `json:"root"`
	Switch string `json:"switch"`
	// NUMA is the NUMA node; negative without one.
	NUMA int `json:"numa"`
	// MIG reports that MIG mode is initially enabled.
	MIG bool `json:"mig"`
}

// Machines returns every machine of the catalogue in order of name.
func Machines() ([]Machine, error) { return read[Machine]("machines") }

// FindMachine returns the machine with the name; an error lists the names.
func FindMachine(name string) (Machine, error) {
	machines, err := Machines()
	if err != nil {
		return Machine{}, err
	}
	return find(machines, name, func(m Machine) string { return m.Name })
}

// Node returns the machine as the idle node with the given name. The UUIDs depend on the name, so that nodes with equal
// machines have different GPUs.
func (m Machine) Node(name string) (gpu.Node, error) {
	node := gpu.Node{Name: name, DriverVersion: DriverVersion, CUDAVersion: CUDAVersion}
	for i, slot := range m.GPUs {
		model, err := FindModel(slot.Model)
		if err != nil {
			return gpu.Node{}, fmt.Errorf("machine %s: %w", m.Name, err)
		}
		geometry, err := model.Geometry()
		if err != nil {
			return gpu.Node{}, fmt.Errorf("machine %s: %w", m.Name, err)
		}
		ecc := true
		g := gpu.GPU{
			PCI: slot.PCI, Index: i, Minor: i, UUID: UUID(name, i),
			Product: model.Product, Brand: model.Brand, Architecture: model.Architecture,
			ComputeMajor: model.ComputeMajor, ComputeMinor: model.ComputeMinor,
			MemoryBytes: model.MemoryMiB << 20, ShareableBytes: gpu.ShareableOf(model.MemoryMiB<<20, model.ReservedMiB<<20), Multiprocessors: model.Multiprocessors,
			Geometry: geometry, ECC: &ecc, NUMA: slot.NUMA, PCIeRoot: slot.Root,
		}
		g.Mode = slot.mode(model)
		g.Pending = g.Mode
		for j := range m.GPUs {
			g.Links = append(g.Links, m.Link(i, j))
		}
		if m.Cluster != "" {
			g.Clique = fmt.Sprintf("%s.%d", m.Cluster, m.Clique)
		}
		node.GPUs = append(node.GPUs, g)
	}
	return node, nil
}

func (s Slot) mode(model Model) gpu.Mode {
	switch {
	case !model.MIG():
		return gpu.ModeUnsupported
	case s.MIG:
		return gpu.ModeEnabled
	}
	return gpu.ModeDisabled
}

// Link returns the closest connection of two GPUs: NVLink if there is one, else PCIe.
func (m Machine) Link(a, b int) gpu.Link {
	if n := m.NVLinkCount(a, b); n > 0 {
		return gpu.NVLinks(n)
	}
	return m.PCIeLink(a, b)
}

// PCIeLink returns the connection of two GPUs over PCIe, even if NVLinks connect them.
func (m Machine) PCIeLink(a, b int) gpu.Link {
	x, y := m.GPUs[a], m.GPUs[b]
	switch {
	case a == b:
		return gpu.LinkSelf
	case x.Root == y.Root && x.Switch != "" && x.Switch == y.Switch:
		return gpu.LinkSwitch
	case x.Root == y.Root:
		return gpu.LinkHostBridge
	case x.NUMA == y.NUMA:
		return gpu.LinkNode
	}
	return gpu.LinkSystem
}

// NVLinkCount returns the number of NVLinks between two GPUs.
func (m Machine) NVLinkCount(a, b int) int {
	if a == b || len(m.NVLinks) == 0 {
		return 0
	}
	return strings.IndexByte(".123456789abcdefghi", m.NVLinks[a][b])
}

// UUID returns the UUID of a GPU of a node. It depends only on the name and the index.
func UUID(node string, index int) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s/%d", node, index))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x50, b[8]&0x3f|0x80
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
