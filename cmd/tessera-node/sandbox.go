package main

import (
	"context"

	"github.com/tessera-gpu/tessera/dra-driver/health"
	"github.com/tessera-gpu/tessera/dra-driver/inventory"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/dra-driver/pci"
	"github.com/tessera-gpu/tessera/kubelet-plugin/exporter"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
	"github.com/tessera-gpu/tessera/kubelet-plugin/vfio"
)

// hardware is the source of the node's GPUs: the driver, or for GPUs that are passed to virtual machines the PCI bus.
type hardware interface {
	inventory.Hardware
	health.Hardware
	prepare.Instances
	prepare.Modes
	prepare.Processes
	exporter.Hardware
	connection
	Close()
}

// hardware returns the node's GPUs: those of the driver, for which nodes makes the device nodes, or on a node for virtual machines those on the PCI bus.
func (c config) hardware(nodes func(context.Context) error) hardware {
	if !c.Sandbox() {
		return nvml.New(nvml.Config{Library: c.roots().Library, Nodes: nodes, SysRoot: c.Roots.Sys, Cgroups: c.cgroups()})
	}
	return pci.New(c.Roots.Sys, func(address string) (string, error) {
		group, err := vfio.Find(vfio.Folder(c.Roots.Sys), address)
		return group.ID, err
	})
}

// passthrough returns the component that binds GPUs to vfio-pci; nil if the node has no shape vfio.
func (c config) passthrough(node prepare.Inventory) prepare.Passthrough {
	if !c.Sandbox() {
		return nil
	}
	return passthrough{vfio.New(vfio.Folder(c.Roots.Sys), vfio.Dev(c.devRoot()), vfio.Modprobe(c.Roots.Host)), node}
}

// metadata returns the folder of CDI specs with the metadata of devices, for virtual machines; empty on nodes with a driver.
func (c config) metadata() string {
	if !c.Sandbox() {
		return ""
	}
	return c.cdi
}

// passthrough adapts the binder, which takes PCI addresses, to prepare.Passthrough, which takes names of GPUs.
type passthrough struct {
	binder *vfio.Binder
	node   prepare.Inventory
}

func (p passthrough) Bind(ctx context.Context, gpuName string) (string, error) {
	g, err := p.node.Node().Find(gpuName)
	if err != nil {
		return "", err
	}
	group, err := p.binder.Bind(ctx, g.PCI)
	return group.ID, err
}

func (p passthrough) Unbind(ctx context.Context, gpuName string) error {
	g, err := p.node.Node().Find(gpuName)
	if err != nil {
		return err
	}
	return p.binder.Unbind(ctx, g.PCI)
}
