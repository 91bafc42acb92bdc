package main

import (
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// hardware is the topology of the GPUs of every node.
type hardware struct {
	name string
	gpus []gpu.GPU
}

// machines are the machines of the designs, with 8 and with 16 GPUs.
func machines() []hardware {
	return []hardware{
		build("DGX-1 mesh", 8, mesh),
		build("bridge pairs", 8, pairs),
		build("PCIe and NUMA", 8, none),
		build("NVSwitch", 8, switched),
		build("two DGX-1 meshes", 16, mesh),
		build("bridge pairs", 16, pairs),
		build("PCIe and NUMA", 16, none),
		build("NVSwitch", 16, switched),
	}
}

// mesh is the number of NVLinks between two V100 of a DGX-1.
func mesh(a, b int) int {
	if a/8 != b/8 {
		return 0
	}
	return [8][8]int{
		{0, 1, 1, 2, 2, 0, 0, 0},
		{1, 0, 2, 1, 0, 2, 0, 0},
		{1, 2, 0, 2, 0, 0, 1, 0},
		{2, 1, 2, 0, 0, 0, 0, 1},
		{2, 0, 0, 0, 0, 1, 1, 2},
		{0, 2, 0, 0, 1, 0, 2, 1},
		{0, 0, 1, 0, 1, 2, 0, 2},
		{0, 0, 0, 1, 2, 1, 2, 0},
	}[a%8][b%8]
}

// pairs is a bridge of four NVLinks over every two neighbours.
func pairs(a, b int) int {
	if a/2 == b/2 {
		return 4
	}
	return 0
}

func none(int, int) int { return 0 }

func switched(int, int) int { return gpu.MaxNVLinks }

// build returns a node of this number of GPUs: two to a PCIe switch, four to a root, half of them on each
// of two processors, and joined by NVLinks according to the function.
func build(name string, count int, nvlinks func(a, b int) int) hardware {
	h := hardware{name: fmt.Sprintf("%s, %d GPUs", name, count)}
	for i := range count {
		g := gpu.GPU{Index: i, PCI: fmt.Sprintf("0000:%02x:00.0", 16+i), NUMA: 2 * i / count, PCIeRoot: fmt.Sprintf("pci0000:%02x", i/4)}
		for j := range count {
			g.Links = append(g.Links, link(i, j, count, nvlinks))
		}
		h.gpus = append(h.gpus, g)
	}
	return h
}

func link(a, b, count int, nvlinks func(a, b int) int) gpu.Link {
	switch n := nvlinks(a, b); {
	case a == b:
		return gpu.LinkSelf
	case n > 0:
		return gpu.NVLinks(n)
	case a/2 == b/2:
		return gpu.LinkSwitch
	case a/4 == b/4:
		return gpu.LinkHostBridge
	case 2*a/count == 2*b/count:
		return gpu.LinkNode
	}
	return gpu.LinkSystem
}
