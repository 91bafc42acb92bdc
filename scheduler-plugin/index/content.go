package index

import (
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// publishedContent is what is published on a node, independent of what is allocated. It is immutable, and snapshots
// share it.
type publishedContent struct {
	slices  []*resourceapi.ResourceSlice
	foreign bool
	// pool is the pool of our devices.
	pool poolID
	// gpus have no allocations; only the withheld memory slices are taken.
	gpus           []fit.GPU
	layout         *deviceLayout
	devices        []*resourceapi.Device
	wiring         *topology.Wiring
	delegateReason error
}

// readContent reads the pools of the node. Problems are collected in delegateReason: the node is then evaluated by the
// in-tree allocator, without the pools that wire.Read refuses.
func (x *Index) readContent(n *node) *publishedContent {
	c := &publishedContent{layout: &deviceLayout{}}
	var own *pool
	var problems []error
	for _, p := range n.pools {
		switch {
		case !x.ours(p.id.driver):
			c.foreign = true
		case p.id.name != wire.PoolName(n.name, p.id.driver):
			problems = append(problems, x.readPool(p).Refused)
			continue
		case own == nil:
			own = p
		default:
			problems = append(problems, fmt.Errorf("pools %q and %q: a node has at most one pool of Tessera", own.id.name, p.id.name))
		}
		c.slices = append(c.slices, p.newest...)
	}
	switch {
	case own == nil:
	case !own.complete():
		c.pool = own.id
		problems = append(problems, fmt.Errorf("pool %q: %d of %d ResourceSlices of generation %d are published",
			own.id.name, len(own.newest), own.newest[0].Spec.Pool.ResourceSliceCount, own.newest[0].Spec.Pool.Generation))
	default:
		c.pool = own.id
		problems = append(problems, x.readOwnPool(c, own)...)
	}
	c.delegateReason = errors.Join(problems...)
	return c
}

// readPool reads the newest generation of the pool, which must not be empty.
func (x *Index) readPool(p *pool) wire.Reading {
	list := make([]resourceapi.ResourceSlice, len(p.newest))
	for i, s := range p.newest {
		list[i] = *s
	}
	// The slices have one node, one pool and one generation, so that there is exactly one reading.
	return wire.Read(list)[0]
}

// readOwnPool adds the devices of our pool and returns the problems found. The ResourceSlices of a refused pool are removed, so that
// the in-tree allocator does not evaluate them either.
func (x *Index) readOwnPool(c *publishedContent, p *pool) []error {
	x.stats.Reads++
	reading := x.readPool(p)
	if reading.Refused != nil {
		c.slices = slices.DeleteFunc(c.slices, func(s *resourceapi.ResourceSlice) bool { return x.poolOfSlice(s) == p.id })
		return []error{reading.Refused}
	}
	var problems []error
	for _, strange := range reading.Invalid {
		problems = append(problems, fmt.Errorf("read device %q of pool %q: %w", strange.Name, p.id.name, strange.Err))
	}
	published := 0
	for _, g := range reading.GPUs {
		published += len(g.Devices)
	}
	read := make(map[string]fit.Device, published)
	gpus := make([]gpu.GPU, len(reading.GPUs))
	for i, g := range reading.GPUs {
		var kind *fit.Kind
		if i > 0 && g.GPU.Geometry == reading.GPUs[i-1].GPU.Geometry {
			kind = c.gpus[i-1].Kind
		} else {
			kind = x.intern.kind(g.GPU.Geometry)
		}
		g.GPU.Geometry = kind.Geometry
		gpus[i] = g.GPU
		c.gpus = append(c.gpus, fit.GPU{
			Name: g.Name, Kind: kind, Occupancy: g.GPU.Empty(g.Shares).Withhold(g.GPU.Withheld),
			NUMA: g.GPU.NUMA, Clique: g.GPU.Clique,
		})
		for _, d := range g.Devices {
			if _, twice := read[d.Name]; twice {
				problems = append(problems, fmt.Errorf("read device %q of pool %q: published twice", d.Name, p.id.name))
			}
			read[d.Name] = fit.Device{GPU: i, Use: d.Use}
		}
	}
	c.wiring = x.intern.wiring(gpus)
	x.addDevices(c, p, read)
	return problems
}

// addDevices adds the devices that were read successfully, in order of publication.
func (x *Index) addDevices(c *publishedContent, p *pool, read map[string]fit.Device) {
	var names []string
	var devices []fit.Device
	for _, s := range p.newest {
		for i := range s.Spec.Devices {
			published := &s.Spec.Devices[i]
			if d, ok := read[published.Name]; ok {
				names = append(names, published.Name)
				devices = append(devices, d)
				c.devices = append(c.devices, published)
			}
		}
	}
	c.layout = x.intern.layout(names, devices)
}
