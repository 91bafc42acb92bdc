package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Options determine what is published about a node.
type Options struct {
	// Driver is the name of the DRA driver.
	Driver string
	// Offer is what the node may offer.
	Offer gpu.Offer
	// Full publishes all attributes and capacities on every device. Otherwise only a whole GPU has all of them, and other
	// devices have those that a claim needs to select one.
	Full bool
	// Consumable publishes time shares as devices of type gpu.
	Consumable Consumable
	// Allocated is the memory in bytes that claims already have of a GPU in a shared shape, by the GPU's name: no less is published.
	Allocated map[string]uint64
	// Evict makes the effect of the taint of a Fatal fault NoExecute, so that the pods on the device are evicted.
	Evict bool
}

// Consumable is how claims consume devices of type gpu that several of them can have at the same time. Type, capacities and their policies are those of
// NVIDIA's driver (dra-driver-nvidia-gpu, option consumable-shares).
type Consumable int

// The ways to consume. With ConsumeMemory a claim that requests no memory takes all of it. With ConsumeShares it takes none, and one of Offer.Shares if
// these are limited.
const (
	ConsumeWhole Consumable = iota
	ConsumeMemory
	ConsumeShares
)

// Pool is the content of all ResourceSlices of a node.
type Pool struct {
	Name string
	// Slices are in order of preference. Allocators read ResourceSlices in order of name and take the first device that fits,
	// so that a publisher should name them in this order.
	Slices []Slice
}

// Slice is the content of one ResourceSlice: either counter sets or devices, since the API does not permit both.
type Slice struct {
	SharedCounters []resourceapi.CounterSet
	Devices        []resourceapi.Device
}

// Encode returns the pool of the node: a counter set for each GPU with devices, then the devices in the order of
// gpu.Node.Devices, with the taints of the faults that affect them.
//
// The devices of one GPU are in one ResourceSlice if it can hold them. A fault of a GPU then changes a single ResourceSlice in
// place, and the pool is complete at all times. A node without devices has one empty ResourceSlice, which distinguishes a
// working driver from a missing one.
//
// An error names what cannot be published; nothing is left out silently.
func Encode(n gpu.Node, o Options) (Pool, error) {
	pool := Pool{Name: PoolName(n.Name, o.Driver)}
	if err := check(pool.Name, n.Devices(o.Offer), o); err != nil {
		return Pool{}, fmt.Errorf("encode pool %q: %w", pool.Name, err)
	}
	var sets []resourceapi.CounterSet
	var parts []Slice
	var size size
	for i, island := range n.Islands() {
		s := source{node: n, gpu: n.GPUs[i], island: island, options: o}
		uses := s.gpu.Uses(o.Offer)
		if len(uses) > 0 {
			if err := errors.Join(size.addGPU(s.gpu.Name(), len(uses)), size.addStates(s.gpu.Name(), s.gpu.Geometry)); err != nil {
				return Pool{}, fmt.Errorf("encode pool %q: %w", pool.Name, err)
			}
			sets = append(sets, s.counterSet())
		}
		var devices []resourceapi.Device
		for _, use := range uses {
			d, err := s.device(use)
			if err != nil {
				return Pool{}, fmt.Errorf("encode pool %q: %w", pool.Name, err)
			}
			devices = append(devices, d)
		}
		parts = pack(parts, devices)
	}
	for part := range slices.Chunk(sets, resourceapi.ResourceSliceMaxCounterSets) {
		pool.Slices = append(pool.Slices, Slice{SharedCounters: part})
	}
	pool.Slices = append(pool.Slices, parts...)
	if len(pool.Slices) == 0 {
		pool.Slices = []Slice{{}}
	}
	return pool, nil
}

// pack adds the devices of a GPU to the last Slice if it can hold all of them, otherwise to as few new ones as possible.
func pack(parts []Slice, devices []resourceapi.Device) []Slice {
	const most = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
	if last := len(parts) - 1; last >= 0 && len(parts[last].Devices)+len(devices) <= most {
		parts[last].Devices = append(parts[last].Devices, devices...)
		return parts
	}
	for part := range slices.Chunk(devices, most) {
		parts = append(parts, Slice{Devices: part})
	}
	return parts
}

// check returns an error for what makes the API server or an allocator reject the whole pool: an invalid name, no shares, two
// GPUs with the same name.
func check(pool string, devices []gpu.Device, o Options) error {
	if problems := validation.IsDNS1123Subdomain(pool); len(problems) > 0 {
		return fmt.Errorf("name: %s", strings.Join(problems, ", "))
	}
	if slices.ContainsFunc(o.Offer.Shapes, gpu.Shape.Shared) && o.Offer.Shares < 1 && o.Consumable == ConsumeWhole {
		return fmt.Errorf("shares per GPU: %d, must be at least 1", o.Offer.Shares)
	}
	seen := map[gpu.Device]bool{}
	for _, d := range devices {
		if problems := validation.IsDNS1123Label(DeviceName(d)); len(problems) > 0 {
			return fmt.Errorf("device %q: %s", DeviceName(d), strings.Join(problems, ", "))
		}
		if seen[d] {
			return fmt.Errorf("two GPUs have the name %s", d.GPU)
		}
		seen[d] = true
	}
	return nil
}
