package wire

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Reading is what one node publishes in one pool about its GPUs. It is the inverse of Encode, for readers without access to the
// hardware, such as the scheduler plugin, the installer and the CLI.
type Reading struct {
	Driver, Pool, Node string
	Generation         int64
	// Complete reports that all ResourceSlices of the generation were read. Otherwise GPUs can be missing.
	Complete bool
	// DriverVersion and CUDAVersion are the published semantic versions.
	DriverVersion, CUDAVersion string
	// Refused is the reason why nothing of the pool is read: no agent publishes it like this, because it is not the pool of its
	// node or exceeds a bound (MaxGPUs). It is nil for a pool that is read.
	Refused error
	// GPUs are in order of index.
	GPUs []PublishedGPU
	// Invalid are the devices that differ from those of Encode, such as those of another driver with the same name.
	Invalid []InvalidDevice
}

// PublishedGPU is one GPU with what is published about it.
type PublishedGPU struct {
	// Name is the GPU's name.
	Name string
	// GPU has the published values, and zero values otherwise. Never published are Mode, Pending, Instances and Lost. PCI,
	// Minor, Brand, Architecture, the compute capability, ECC and links need a device with all attributes: a whole GPU, or any
	// with Options.Full. NUMA is -1 if there is no NUMA node. The geometry has the offered profiles (gpu.OfferedGeometry).
	// Withheld are the memory slices whose counter is 0.
	GPU gpu.GPU
	// Shares is the number of shares in a shared shape; 0 if none is offered.
	Shares int
	// MemoryEnforced is the attribute of the devices in a shared shape; nil if none has it.
	MemoryEnforced map[gpu.Shape]string
	// Devices are in the order of publication.
	Devices []PublishedDevice
	// Taints are the distinct taints of all devices, in order of their first appearance.
	Taints []resourceapi.DeviceTaint
}

// PublishedDevice is one device of a GPU.
type PublishedDevice struct {
	Name string
	Use  gpu.Use
	// Taints are as published. TaintSignal returns the signal of those that the driver set for a fault.
	Taints []resourceapi.DeviceTaint
}

// InvalidDevice is a device that could not be read, and the reason.
type InvalidDevice struct {
	Name string
	Err  error
}

// Read returns a Reading for each node, driver and pool, in this order. ResourceSlices of older generations, as the node publishes
// them, are ignored: a node has no influence on what is read of another one. Names of devices are not parsed; all data is from
// attributes, capacities, counters and taints. The list is not modified, but the results refer to it.
//
// The number of steps is linear in the size of the list, for any content that the API server accepts.
func Read(list []resourceapi.ResourceSlice) []Reading {
	type key struct{ node, driver, pool string }
	pools := map[key][]resourceapi.ResourceSlice{}
	for _, s := range list {
		k := key{nodeOf(s.Spec), s.Spec.Driver, s.Spec.Pool.Name}
		pools[k] = append(pools[k], s)
	}
	var readings []Reading
	for k := range pools {
		readings = append(readings, readPool(pools[k]))
	}
	slices.SortFunc(readings, func(a, b Reading) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool))
	})
	return readings
}

// nodeOf returns the node that the ResourceSlice names, empty if there is none.
func nodeOf(s resourceapi.ResourceSliceSpec) string {
	if s.NodeName == nil {
		return ""
	}
	return *s.NodeName
}

// Has reports whether the result names a device of this pool, published or not.
func (r Reading) Has(result resourceapi.DeviceRequestAllocationResult) bool {
	return result.Driver == r.Driver && result.Pool == r.Pool && r.Pool == PoolName(r.Node, r.Driver)
}

// Find returns the device with the name and its GPU, or an error.
func (r Reading) Find(device string) (PublishedGPU, PublishedDevice, error) {
	for _, g := range r.GPUs {
		for _, d := range g.Devices {
			if d.Name == device {
				return g, d, nil
			}
		}
	}
	return PublishedGPU{}, PublishedDevice{}, fmt.Errorf("device %q of pool %q: not published", device, r.Pool)
}

// Decode returns the device that an allocation result names, with the share that the claim consumes of a shared one. Unlike the
// function Decode, it finds only devices that are published now.
func (r Reading) Decode(result resourceapi.DeviceRequestAllocationResult) (gpu.Device, error) {
	if !r.Has(result) {
		return gpu.Device{}, fmt.Errorf("device %q of pool %q, driver %q: want pool %q, driver %q", result.Device, result.Pool, result.Driver, r.Pool, r.Driver)
	}
	g, found, err := r.Find(result.Device)
	if err != nil {
		return gpu.Device{}, err
	}
	d := gpu.Device{GPU: g.Name, Use: found.Use}
	d.Share = Share(result, d.Shape, r.Driver)
	return d, nil
}

// readPool reads the newest generation of one pool. The list must not be empty.
func readPool(list []resourceapi.ResourceSlice) Reading {
	newest := slices.MaxFunc(list, func(a, b resourceapi.ResourceSlice) int {
		return cmp.Compare(a.Spec.Pool.Generation, b.Spec.Pool.Generation)
	}).Spec
	r := Reading{Driver: newest.Driver, Pool: newest.Pool.Name, Node: nodeOf(newest), Generation: newest.Pool.Generation}
	if r.Refused = checkPoolName(r.Pool, r.Node, r.Driver); r.Refused != nil {
		return r
	}
	list = slices.DeleteFunc(slices.Clone(list), func(s resourceapi.ResourceSlice) bool {
		return s.Spec.Pool.Generation != r.Generation
	})
	// The API server lists ResourceSlices in order of name, and allocators try them in this order.
	slices.SortFunc(list, func(a, b resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	r.Complete = int64(len(list)) == newest.Pool.ResourceSliceCount
	sets := map[string]map[string]resourceapi.Counter{}
	var devices []published
	for _, s := range list {
		for _, set := range s.Spec.SharedCounters {
			sets[set.Name] = set.Counters
		}
		for i := range s.Spec.Devices {
			devices = append(devices, newPublished(&s.Spec.Devices[i], r.Driver))
		}
	}
	if err := r.gpus(devices, sets); err != nil {
		r.GPUs, r.Invalid, r.Refused = nil, nil, fmt.Errorf("pool %q: %w", r.Pool, err)
	}
	return r
}

// gpus groups the devices by GPU and reads each GPU. A device belongs to the GPU whose counter set it consumes from. A monitor,
// which consumes nothing, belongs to the GPU with the same UUID. An error names the bound that the pool exceeds.
func (r *Reading) gpus(devices []published, sets map[string]map[string]resourceapi.Counter) error {
	bySet := r.group(devices)
	var size size
	var known offers
	for _, name := range slices.Sorted(maps.Keys(bySet)) {
		if err := size.addGPU(name, len(bySet[name])); err != nil {
			return err
		}
		g, strange, err := known.readGPU(name, bySet[name], sets[name])
		if err := errors.Join(err, size.addStates(name, g.GPU.Geometry)); err != nil {
			return err
		}
		r.Invalid = append(r.Invalid, strange...)
		if len(g.Devices) == 0 {
			continue
		}
		r.GPUs = append(r.GPUs, g)
		for _, d := range bySet[name] {
			r.DriverVersion = cmp.Or(r.DriverVersion, d.version(DriverVersion))
			r.CUDAVersion = cmp.Or(r.CUDAVersion, d.version(CUDADriverVersion))
		}
	}
	slices.SortStableFunc(r.GPUs, func(a, b PublishedGPU) int { return cmp.Compare(a.GPU.Index, b.GPU.Index) })
	return nil
}

// group returns the devices by GPU, and records those that belong to none.
func (r *Reading) group(devices []published) map[string][]published {
	bySet := map[string][]published{}
	byUUID := map[string]string{}
	var monitors []published
	for _, d := range devices {
		switch set, err := d.set(); {
		case err != nil:
			r.Invalid = append(r.Invalid, InvalidDevice{d.Name, err})
		case set == "":
			monitors = append(monitors, d)
		default:
			bySet[set] = append(bySet[set], d)
			byUUID[d.uuid()] = set
		}
	}
	for _, d := range monitors {
		set, known := byUUID[d.uuid()]
		if !known {
			// Only the monitor of this GPU is offered. The name is not published then, and the UUID replaces it.
			set = d.uuid()
		}
		bySet[set] = append(bySet[set], d)
	}
	return bySet
}
