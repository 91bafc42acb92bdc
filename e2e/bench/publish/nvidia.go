package main

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// nvidia is the name of the peer: kubernetes-sigs/dra-driver-nvidia-gpu, gate DynamicMIG on, as of
// v0.5.0-dev. It offers no shared shapes other than whole GPUs and MIG, and no monitors.
const nvidia = "NVIDIA's driver"

// nvidias is the set that NVIDIA's driver publishes for the hardware: the same attributes and capacities
// on every device, counters for every kind of engine, one slice per GPU and one for all counters.
func nvidias() set {
	return set{name: nvidia, encode: func(n gpu.Node) (wire.Pool, error) {
		pool := wire.Pool{Name: n.Name, Slices: []wire.Slice{{}}}
		for _, g := range n.GPUs {
			whole := engines(g.Geometry.Capacity(), g.MemoryBytes, g.Multiprocessors)
			pool.Slices[0].SharedCounters = append(pool.Slices[0].SharedCounters, resourceapi.CounterSet{
				Name: counterSet(g), Counters: counters(whole, 0, g.Geometry.Slices()),
			})
			devices := []resourceapi.Device{device(g, fmt.Sprintf("gpu-%d", g.Minor), whole, 0, g.Geometry.Slices())}
			text(devices[0].Attributes, "uuid", g.UUID)
			for _, p := range g.Geometry.Profiles() {
				for _, start := range p.Starts {
					devices = append(devices, slice(g, p, start))
				}
			}
			pool.Slices = append(pool.Slices, wire.Slice{Devices: devices})
		}
		return pool, nil
	}}
}

// slice is a placement of a MIG profile.
func slice(g gpu.GPU, p gpu.Profile, start int) resourceapi.Device {
	label := strings.NewReplacer(".", "", "+", "-").Replace(p.Name)
	name := fmt.Sprintf("gpu-%d-mig-%s-%d-%d", g.Minor, label, p.ID, start)
	d := device(g, name, engines(p.Engines, p.MemoryBytes, p.Multiprocessors), start, p.Size)
	text(d.Attributes, "type", "mig")
	text(d.Attributes, "parentUUID", g.UUID)
	text(d.Attributes, "profile", p.Name)
	return d
}

func counterSet(g gpu.GPU) string { return fmt.Sprintf("gpu-%d-counter-set", g.Minor) }

// device is the common part of all devices of a GPU; it takes size memory slices from start on.
func device(g gpu.GPU, name string, has []amount, start, size int) resourceapi.Device {
	d := resourceapi.Device{
		Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
		Capacity:         map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: counterSet(g), Counters: counters(has, start, size)}},
	}
	for key, value := range map[resourceapi.QualifiedName]string{
		"type": "gpu", "productName": g.Product, "brand": g.Brand, "architecture": g.Architecture, "addressingMode": "HMM",
		wire.PCIBusID: g.PCI, wire.PCIeRoot: g.PCIeRoot,
	} {
		text(d.Attributes, key, value)
	}
	for key, value := range map[resourceapi.QualifiedName]string{
		"cudaComputeCapability": fmt.Sprintf("%d.%d.0", g.ComputeMajor, g.ComputeMinor), "driverVersion": "580.65.6", "cudaDriverVersion": "13.0.0",
	} {
		d.Attributes[key] = resourceapi.DeviceAttribute{VersionValue: &value}
	}
	d.Attributes[wire.NUMANode] = resourceapi.DeviceAttribute{IntValue: new(int64(g.NUMA))}
	for _, a := range has {
		d.Capacity[a.capacity] = resourceapi.DeviceCapacity{Value: a.value}
	}
	return d
}

func text(a map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, key resourceapi.QualifiedName, value string) {
	a[key] = resourceapi.DeviceAttribute{StringValue: &value}
}

// amount is a quantity of a device, as a capacity and as a counter.
type amount struct {
	capacity resourceapi.QualifiedName
	counter  string
	value    resource.Quantity
}

func engines(e gpu.Engines, memory uint64, multiprocessors int) []amount {
	count := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	return []amount{
		{"memory", "memory", *resource.NewQuantity(int64(memory), resource.BinarySI)},
		{"multiprocessors", "multiprocessors", count(multiprocessors)},
		{"copyEngines", "copy-engines", count(e.Copy)},
		{"decoders", "decoders", count(e.Decoder)},
		{"encoders", "encoders", count(e.Encoder)},
		{"jpegEngines", "jpeg-engines", count(e.JPEG)},
		{"ofaEngines", "ofa-engines", count(e.OFA)},
	}
}

// counters are the amounts and the memory slices from start on.
func counters(has []amount, start, size int) map[string]resourceapi.Counter {
	all := map[string]resourceapi.Counter{}
	for _, a := range has {
		all[a.counter] = resourceapi.Counter{Value: a.value}
	}
	for i := range size {
		all[fmt.Sprintf("memory-slice-%d", start+i)] = resourceapi.Counter{Value: *resource.NewQuantity(1, resource.DecimalSI)}
	}
	return all
}
