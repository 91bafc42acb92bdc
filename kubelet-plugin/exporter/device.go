package exporter

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// device is a GPU or a MIG device with the labels of its series.
type device struct {
	gpu, uuid, product, shape, profile string
	// gpuUUID is the UUID of the GPU, gpuInstance NVML's id of the GPU instance of a MIG device: DCGM identifies devices by these two.
	gpuUUID, gpuInstance string
	// isMIG is set for a MIG device, which is at the placement.
	isMIG     bool
	placement gpu.Placement
	consumer
	// held are the allocations of the device.
	held []allocation
}

// card is a GPU with its MIG devices.
type card struct {
	device
	gpu.GPU
	occupancy gpu.Occupancy
	// migDevices are the MIG devices by UUID.
	migDevices map[string]device
}

// cards returns the node's GPUs with their allocations. A GPU without an address has no name, because it has never
// responded, and is left out. It is pure.
func cards(node gpu.Node, held []allocation) []card {
	var all []card
	for _, g := range node.GPUs {
		if g.PCI != "" {
			all = append(all, cardOf(g, held))
		}
	}
	return all
}

func cardOf(g gpu.GPU, held []allocation) card {
	c := card{
		GPU: g, occupancy: g.Empty(0), migDevices: map[string]device{},
		device: device{gpu: g.Name(), uuid: g.UUID, gpuUUID: g.UUID, product: g.Product},
	}
	var holders []consumer
	for _, h := range held {
		if h.use.GPU != c.gpu {
			continue
		}
		// An allocation that does not fit conflicts with another record; it is ignored here.
		if next, err := c.occupancy.Take(h.use.Use); err == nil {
			c.occupancy = next
		}
		if h.use.Shape == gpu.MIG {
			c.addMIGDevice(h.instance, h)
			continue
		}
		c.held = append(c.held, h)
		holders = append(holders, h.holders...)
	}
	for _, i := range g.Instances {
		if _, known := c.migDevices[i.UUID]; !known {
			c.addMIGDevice(i)
		}
	}
	c.occupancy = c.occupancy.Withhold(g.Withheld)
	c.consumer = commonLabels(holders)
	shape := c.occupancy.Shape()
	if shape == gpu.None && len(g.Instances) > 0 {
		shape = gpu.MIG
	}
	c.shape = shape.String()
	return c
}

// addMIGDevice adds the MIG device, if it exists, held by at most one claim.
func (c *card) addMIGDevice(i gpu.Instance, held ...allocation) {
	if i.UUID == "" {
		return
	}
	profile, _ := c.Geometry.Profile(i.Placement.Profile)
	d := device{
		gpu: c.gpu, uuid: i.UUID, gpuUUID: c.UUID, gpuInstance: strconv.Itoa(i.GI), product: c.Product, shape: gpu.MIG.String(), profile: profile.Name,
		isMIG: true, placement: i.Placement, held: held,
	}
	for _, h := range held {
		d.consumer = commonLabels(h.holders)
	}
	c.migDevices[i.UUID] = d
}

// use returns the use that the device represents: the whole GPU, also if it is partitioned or shared, or the MIG device.
func (d device) use() gpu.Use {
	if d.isMIG {
		return gpu.Use{Shape: gpu.MIG, Placement: d.placement}
	}
	return gpu.Use{Shape: gpu.Whole}
}

// all returns the GPU and its MIG devices, the latter ordered by UUID.
func (c *card) all() []device {
	all := []device{c.device}
	for _, d := range c.migDevices {
		all = append(all, d)
	}
	slices.SortFunc(all[1:], func(a, b device) int { return strings.Compare(a.uuid, b.uuid) })
	return all
}

// freeProfiles returns how many more MIG devices of each profile fit now, by the profile's name: 0 on a GPU that would
// need a reset first.
func (c *card) freeProfiles() map[string]int {
	carvable := len(c.Uses(gpu.Offer{Shapes: []gpu.Shape{gpu.MIG}})) > 0
	room := map[string]int{}
	for _, profile := range c.Geometry.Profiles() {
		room[profile.Name] = 0
		left := c.occupancy
		// Spans of one length are packed best in ascending order of start.
		for _, p := range c.Geometry.Placements(profile.ID) {
			if next, err := left.Take(gpu.Use{Shape: gpu.MIG, Placement: p}); err == nil && carvable {
				left = next
				room[profile.Name]++
			}
		}
	}
	return room
}

// allocatedMemory returns the device memory in bytes that the claim was allocated with the device.
func (c *card) allocatedMemory(h allocation) uint64 {
	switch h.use.Shape {
	case gpu.MIG:
		profile, _ := c.Geometry.Profile(h.use.Placement.Profile)
		return profile.MemoryBytes
	case gpu.TimeShare, gpu.MPS:
		return h.use.Share.MemoryBytes
	case gpu.Whole, gpu.VFIO:
		return c.MemoryBytes
	case gpu.None, gpu.Monitor:
	}
	return 0
}
