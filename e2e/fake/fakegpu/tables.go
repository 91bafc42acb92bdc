package fakegpu

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// cpusPerNUMANode is the number of CPUs of a NUMA node of the machine.
const cpusPerNUMANode = 32

// hardwareOf converts a machine of the catalogue into the engine's tables.
func hardwareOf(m catalog.Machine, node string) (hardware, error) {
	h := hardware{GPUCount: uint32(len(m.GPUs)), MajorGPU: majorGPU, MajorUVM: majorUVM, MajorCaps: majorCaps}
	if len(m.GPUs) > maxGPUs {
		return h, fmt.Errorf("machine %s: %d GPUs, at most %d", m.Name, len(m.GPUs), maxGPUs)
	}
	addresses, err := addressesOf(m)
	if err != nil {
		return h, err
	}
	numbers := map[string]uint32{}
	for i, slot := range m.GPUs {
		model, err := catalog.FindModel(slot.Model)
		if err != nil {
			return h, err
		}
		number, known := numbers[slot.Model]
		if !known {
			number = uint32(len(numbers))
			if number == maxModels {
				return h, fmt.Errorf("machine %s: more than %d models", m.Name, maxModels)
			}
			numbers[slot.Model] = number
			h.Models[number] = modelTable(model)
		}
		part := gpuTable(m, i)
		part.Model, part.Domain, part.Bus, part.Device = number, addresses[i].Domain, addresses[i].Bus, addresses[i].Device
		connect(&part, m, i, model.NVLinks, addresses)
		if err := joinFabric(&part, m, model); err != nil {
			return h, err
		}
		copy(part.UUID[:], catalog.UUID(node, i))
		copy(part.Serial[:], fmt.Sprintf("165%010d", sum32(fmt.Sprint(node, i))))
		h.GPUs[i] = part
	}
	return h, nil
}

// addressesOf returns the PCI addresses of the GPUs.
func addressesOf(m catalog.Machine) ([]linkPart, error) {
	addresses := make([]linkPart, len(m.GPUs))
	for i, slot := range m.GPUs {
		a := &addresses[i]
		if _, err := fmt.Sscanf(slot.PCI, "%x:%x:%x.0", &a.Domain, &a.Bus, &a.Device); err != nil {
			return nil, fmt.Errorf("machine %s: PCI address %q: %w", m.Name, slot.PCI, err)
		}
	}
	return addresses, nil
}

func gpuTable(m catalog.Machine, i int) gpuPart {
	part := gpuPart{Minor: uint32(i), ModuleID: uint32(i + 1), NUMA: int32(m.GPUs[i].NUMA)}
	for j := range m.GPUs {
		part.Levels[j] = topologyLevel(m.PCIeLink(i, j))
	}
	first, last := cpusOf(m.GPUs[i].NUMA)
	for cpu := first; cpu <= last; cpu++ {
		part.CPUs[cpu/64] |= 1 << (cpu % 64)
	}
	return part
}

// cpusOf returns the CPUs of a NUMA node.
func cpusOf(numa int) (first, last int) {
	first = max(numa, 0) * cpusPerNUMANode
	return first, first + cpusPerNUMANode - 1
}

// joinFabric adds the GPU to the NVLink fabric: from Hopper on, GPUs behind NVSwitches have one,
// with the zero UUID where it ends at the machine.
func joinFabric(part *gpuPart, m catalog.Machine, model catalog.Model) error {
	if !m.NVSwitch || model.ComputeMajor < 9 {
		return nil
	}
	part.Fabric = 1
	if m.Cluster == "" {
		return nil
	}
	cluster, err := hex.DecodeString(strings.ReplaceAll(m.Cluster, "-", ""))
	if err != nil || len(cluster) != len(part.Cluster) {
		return fmt.Errorf("machine %s: cluster %q is no UUID", m.Name, m.Cluster)
	}
	copy(part.Cluster[:], cluster)
	part.Clique = uint32(m.Clique)
	return nil
}

// The kinds of far ends of an NVLink (nvmlIntNvLinkDeviceType_t), and the switches' addresses.
const (
	linkToGPU    = 0
	linkToSwitch = 2
	switchBus    = 0xf4
	switches     = 4
)

// connect fills the NVLinks of GPU i: all of them to switches, or to its peers in order of index.
func connect(part *gpuPart, m catalog.Machine, i, links int, addresses []linkPart) {
	if m.NVSwitch {
		part.LinkCount = uint32(links)
		for link := range part.LinkCount {
			part.NVLinks[link] = linkPart{Kind: linkToSwitch, Bus: switchBus + link%switches}
		}
		return
	}
	for j, end := range addresses {
		end.Kind = linkToGPU
		for range m.NVLinkCount(i, j) {
			part.NVLinks[part.LinkCount] = end
			part.LinkCount++
		}
	}
}

// topologyLevel is the nvmlGpuTopologyLevel_t of a relation.
func topologyLevel(link gpu.Link) uint32 {
	switch link {
	case gpu.LinkSelf:
		return 0
	case gpu.LinkSwitch:
		return 10
	case gpu.LinkMultiSwitch:
		return 20
	case gpu.LinkHostBridge:
		return 30
	case gpu.LinkNode:
		return 40
	case gpu.LinkSystem, gpu.LinkUnknown, gpu.LinkNVLink:
	}
	return 50
}

// sum32 is a small hash for serial numbers.
func sum32(text string) uint32 {
	var sum uint32
	for _, b := range []byte(text) {
		sum = bits.RotateLeft32(sum, 5) ^ uint32(b)*0x9e3779b1
	}
	return sum
}
