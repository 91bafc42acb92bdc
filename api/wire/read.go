package wire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Reading is what the ResourceSlices of one pool tell about the GPUs of a node: the inverse of Encode,
// for those who see a cluster and not the hardware.
type Reading struct {
	Driver, Pool, Node string
	Generation         int64
	// Complete reports that every slice of the generation is there. Until then GPUs may be missing.
	Complete bool
	// DriverVersion and CUDAVersion are as published: semantic versions.
	DriverVersion, CUDAVersion string
	// GPUs are in order of index.
	GPUs []PublishedGPU
	// Invalid are the devices that do not follow the form of Encode, such as those of another driver of
	// the same name.
	Invalid []InvalidDevice
}

// PublishedGPU is one GPU as far as it is published.
type PublishedGPU struct {
	// Name is the GPU's name.
	Name string
	// GPU has what the devices tell, and zero values for the rest: always Mode, Pending, Instances and
	// Lost, and without a complete device (a whole GPU, or any with Options.Full) PCI, Minor, Brand,
	// Architecture, the compute capability, ECC and links. NUMA is -1 without one. Its geometry has the
	// profiles that are offered (gpu.OfferedGeometry), Withheld the slices that nobody may take.
	GPU gpu.GPU
	// Shares is how many claims the GPU serves in a shared shape; 0 when none is offered.
	Shares int
	// Devices are in the order of publication.
	Devices []PublishedDevice
	// Taints are those that at least one of the devices has, each once, in the order of the first device that has it.
	Taints []resourceapi.DeviceTaint
}

// PublishedDevice is one device of a GPU.
type PublishedDevice struct {
	Name string
	Use  gpu.Use
	// Taints are as they are published; TaintSignal says what those of faults tell.
	Taints []resourceapi.DeviceTaint
}

// InvalidDevice is a device that could not be read, and why.
type InvalidDevice struct {
	Name string
	Err  error
}

// Read returns what the slices tell, pool by pool in order of node and pool. Slices of an older
// generation of their pool are ignored. Only attributes, capacities, counters and taints are read; names are
// labels by which they are found again.
func Read(list []resourceapi.ResourceSlice) []Reading {
	type key struct{ driver, pool string }
	pools := map[key][]resourceapi.ResourceSlice{}
	for _, s := range list {
		k := key{s.Spec.Driver, s.Spec.Pool.Name}
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

// Find returns the device with the name and the GPU that it is of.
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

// Decode returns the device that an allocation result names, with what the claim takes of a shared one.
// Other than the function of this name it knows only what is published now.
func (r Reading) Decode(result resourceapi.DeviceRequestAllocationResult) (gpu.Device, error) {
	if result.Driver != r.Driver || result.Pool != r.Pool {
		return gpu.Device{}, fmt.Errorf("device %q of pool %q, driver %q: this is pool %q, driver %q", result.Device, result.Pool, result.Driver, r.Pool, r.Driver)
	}
	g, found, err := r.Find(result.Device)
	if err != nil {
		return gpu.Device{}, err
	}
	d := gpu.Device{GPU: g.Name, Use: found.Use}
	d.Share = Share(result, d.Shape, r.Driver)
	return d, nil
}

// readPool reads the newest generation of one pool.
func readPool(list []resourceapi.ResourceSlice) Reading {
	newest := slices.MaxFunc(list, func(a, b resourceapi.ResourceSlice) int {
		return cmp.Compare(a.Spec.Pool.Generation, b.Spec.Pool.Generation)
	}).Spec
	r := Reading{Driver: newest.Driver, Pool: newest.Pool.Name, Generation: newest.Pool.Generation}
	if newest.NodeName != nil {
		r.Node = *newest.NodeName
	}
	list = slices.DeleteFunc(slices.Clone(list), func(s resourceapi.ResourceSlice) bool {
		return s.Spec.Pool.Generation != r.Generation
	})
	// Whoever lists slices gets them in order of their names, and an allocator tries them so.
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
	r.gpus(devices, sets)
	return r
}

// gpus gathers the devices by GPU and reads each.
func (r *Reading) gpus(devices []published, sets map[string]map[string]resourceapi.Counter) {
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
			// Nothing but the monitor is offered: the UUID is all the name there is.
			set = d.uuid()
		}
		bySet[set] = append(bySet[set], d)
	}
	var known offers
	for _, name := range slices.Sorted(maps.Keys(bySet)) {
		g, strange := known.readGPU(name, bySet[name], sets[name])
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
}
