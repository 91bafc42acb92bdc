package wire

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Options decide what is published about a node.
type Options struct {
	// Driver is the name of the DRA driver.
	Driver string
	// Offer is what the node may offer.
	Offer gpu.Offer
	// Full publishes every attribute and capacity on every device; otherwise only a whole GPU carries
	// them all, and the others what a claim needs to choose.
	Full bool
	// Evict has the pods of devices with a Fatal fault evicted: the effect of its taint is NoExecute then.
	Evict bool
}

// Pool is the content of all ResourceSlices of a node.
type Pool struct {
	Name string
	// Slices are in order of preference: an allocator that takes the first fit reads them so.
	Slices []Slice
}

// Slice is the content of one ResourceSlice: counter sets or devices, never both.
type Slice struct {
	SharedCounters []resourceapi.CounterSet
	Devices        []resourceapi.Device
}

// Encode returns what is published about the node: a counter set per GPU that is offered, in slices of
// their own, then the devices in the order of gpu.Node.Devices, tainted for the faults that they have part
// in. The devices of a GPU are in one slice where they fit: what befalls it changes one slice in place, and
// the pool is whole all the while. A node without devices has one empty slice, which tells a working driver
// from none. An error names what cannot be published; nothing is left out silently.
func Encode(n gpu.Node, o Options) (Pool, error) {
	pool := Pool{Name: PoolName(n.Name, o.Driver)}
	if err := check(pool.Name, n.Devices(o.Offer), o.Offer); err != nil {
		return Pool{}, fmt.Errorf("encode pool %q: %w", pool.Name, err)
	}
	var sets []resourceapi.CounterSet
	var parts []Slice
	for i, island := range n.Islands() {
		s := source{node: n, gpu: n.GPUs[i], island: island, options: o}
		uses := s.gpu.Uses(o.Offer)
		if len(uses) > 0 {
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

// pack adds the devices of a GPU to the last slice where they fit, else to as few new ones as hold them.
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

// check returns what the API server or an allocator would refuse the whole pool for.
func check(pool string, devices []gpu.Device, offer gpu.Offer) error {
	if problems := validation.IsDNS1123Subdomain(pool); len(problems) > 0 {
		return fmt.Errorf("name: %s", strings.Join(problems, ", "))
	}
	if slices.ContainsFunc(offer.Shapes, gpu.Shape.Shared) && offer.Shares < 1 {
		return fmt.Errorf("shares per GPU: %d, must be at least 1", offer.Shares)
	}
	seen := map[gpu.Device]bool{}
	for _, d := range devices {
		if problems := validation.IsDNS1123Label(DeviceName(d)); len(problems) > 0 {
			return fmt.Errorf("device %q: %s", DeviceName(d), strings.Join(problems, ", "))
		}
		if seen[d] {
			return fmt.Errorf("two GPUs are called %s", d.GPU)
		}
		seen[d] = true
	}
	return nil
}
