package gputest

import (
	"crypto/sha1"
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The driver of every node that the catalogue builds.
const (
	DriverVersion = "580.65.06"
	CUDAVersion   = "13.0"
)

// Machine is the GPU hardware of one node.
type Machine struct {
	// Name is the catalogue's key, such as h100x8.
	Name string `json:"name"`
	// NVSwitch reports that the NVLinks end at switches, not at the peer GPUs.
	NVSwitch bool `json:"nvswitch"`
	// Cluster and Clique name the NVLink domain that spans machines; Cluster is empty without one.
	Cluster string `json:"cluster"`
	Clique  int    `json:"clique"`
	// NVLinks has a row per GPU and in it a column per GPU: the number of NVLinks between the two as
	// 1-9 and a-i for 10-18, a dot for none.
	NVLinks []string `json:"nvlinks"`
	// GPUs are the GPUs by index.
	GPUs []Slot `json:"gpus"`
}

// Slot is a GPU in its place.
type Slot struct {
	// Model is the name of the model.
	Model string `json:"model"`
	// PCI is the address, Root the root complex, and Switch the PCIe switch in between, empty without.
	PCI    string `json:"pci"`
	Root   string `json:"root"`
	Switch string `json:"switch"`
	// NUMA is the NUMA node, negative without one.
	NUMA int `json:"numa"`
	// MIG reports that the MIG mode is on when the machine is delivered.
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

// Node returns the machine as a node with that name reports it when nothing runs on it. The UUIDs
// depend on the name: two nodes with equal machines have different GPUs.
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
			MemoryBytes: model.MemoryMiB << 20, Multiprocessors: model.Multiprocessors,
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

// Link returns the closest relation of two GPUs: NVLinks where there are any, else PCIe.
func (m Machine) Link(a, b int) gpu.Link {
	if n := m.NVLinkCount(a, b); n > 0 {
		return gpu.NVLinks(n)
	}
	return m.PCIeLink(a, b)
}

// PCIeLink returns the relation of two GPUs over PCIe, whether or not NVLinks join them.
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

// UUID returns the UUID of a GPU of a node: always the same for the same name and index.
func UUID(node string, index int) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s/%d", node, index))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x50, b[8]&0x3f|0x80
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
