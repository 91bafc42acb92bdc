package main

import (
	"strconv"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// deviceAttributes lists the attributes, capacities and counters of the devices that the machines of the catalogue publish.
func deviceAttributes() (section, error) {
	s := section{title: "Attributes, capacities and counters of published devices"}
	machines, err := catalog.Machines()
	if err != nil {
		return s, err
	}
	for _, m := range machines {
		node, err := m.Node(m.Name)
		if err != nil {
			return s, err
		}
		offer := gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, Shares: 10}
		pool, err := wire.Encode(node, wire.Options{Driver: v1alpha1.DriverName, Offer: offer, Full: true})
		if err != nil {
			return s, err
		}
		s.lines = append(s.lines, poolNames(pool)...)
		bare := gpu.Node{Name: node.Name}
		for i, g := range node.GPUs {
			bare.GPUs = append(bare.GPUs, gpu.GPU{PCI: g.PCI, Index: i, Product: g.Product, MemoryBytes: g.MemoryBytes, PCIeRoot: g.PCIeRoot, IOMMUGroup: strconv.Itoa(i)})
		}
		pool, err = wire.Encode(bare, wire.Options{Driver: v1alpha1.DriverName, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.VFIO}}, Full: true})
		if err != nil {
			return s, err
		}
		s.lines = append(s.lines, poolNames(pool)...)
	}
	return s, nil
}

// poolNames lists the names in the slices of a pool.
func poolNames(pool wire.Pool) []string {
	var lines []string
	for _, s := range pool.Slices {
		for _, d := range s.Devices {
			for name := range d.Attributes {
				lines = append(lines, "attribute "+string(name))
			}
			for name := range d.Capacity {
				lines = append(lines, "capacity "+string(name))
			}
		}
		for _, set := range s.SharedCounters {
			for name := range set.Counters {
				lines = append(lines, "counter "+name)
			}
		}
	}
	return lines
}
