package wire

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// published is a device of a ResourceSlice, together with its driver.
type published struct {
	*resourceapi.Device
	driver string
	// qualified is true if an attribute or a capacity has the driver's domain in its name.
	qualified bool
	// cost is what the device consumes of the counter set of its GPU.
	cost gpu.Cost
}

// newPublished returns the device with its cost. d is retained and must not be changed.
func newPublished(d *resourceapi.Device, driver string) published {
	p := published{Device: d, driver: driver}
	for _, consumed := range d.ConsumesCounters {
		p.cost, _ = costOf(consumed.Counters)
	}
	p.qualified = hasDomain(d.Attributes, driver) || hasDomain(d.Capacity, driver)
	return p
}

// hasDomain reports whether a name has the domain.
func hasDomain[V any](named map[resourceapi.QualifiedName]V, domain string) bool {
	for name := range named {
		if before, _, ok := strings.Cut(string(name), "/"); ok && before == domain {
			return true
		}
	}
	return false
}

// attribute returns the attribute. A name in the driver's domain is valid with and without the domain.
func (d published) attribute(name resourceapi.QualifiedName) resourceapi.DeviceAttribute {
	if a, ok := d.Attributes[name]; ok || !d.qualified {
		return a
	}
	return d.Attributes[resourceapi.QualifiedName(d.driver)+"/"+name]
}

func (d published) text(name resourceapi.QualifiedName) string {
	if value := d.attribute(name).StringValue; value != nil {
		return *value
	}
	return ""
}

func (d published) version(name resourceapi.QualifiedName) string {
	if value := d.attribute(name).VersionValue; value != nil {
		return *value
	}
	return ""
}

// number returns the attribute, or otherwise if the device does not have it.
func (d published) number(name resourceapi.QualifiedName, otherwise int) int {
	if value := d.attribute(name).IntValue; value != nil {
		return int(*value)
	}
	return otherwise
}

// capacity returns the capacity; 0 if the device does not have it, or if it is negative.
func (d published) capacity(name resourceapi.QualifiedName) int64 {
	c, ok := d.Capacity[name]
	if !ok && d.qualified {
		c = d.Capacity[resourceapi.QualifiedName(d.driver)+"/"+name]
	}
	return max(0, c.Value.Value())
}

// uuid returns the UUID of the GPU; empty if there is none.
func (d published) uuid() string { return cmp.Or(d.text(ParentUUID), d.text(UUID)) }

// shape returns the shape of the device. A device of type gpu that several claims can have is a time share (Consumable).
func (d published) shape() (gpu.Shape, error) {
	shape, err := gpu.ParseShape(d.text(Type))
	if shape == gpu.Whole && d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations {
		return gpu.TimeShare, err
	}
	return shape, err
}

// set returns the name of the counter set that the device consumes from; empty for a monitor. An error names what makes the
// device different from those of Encode.
func (d published) set() (string, error) {
	shape, err := d.shape()
	switch {
	case err != nil:
		return "", fmt.Errorf("attribute %s: %w", Type, err)
	case shape == gpu.VFIO && d.text(PCIBusID) == "":
		return "", fmt.Errorf("attribute %s: not set", PCIBusID)
	case shape != gpu.VFIO && d.uuid() == "":
		return "", fmt.Errorf("attributes %s and %s: none is set", UUID, ParentUUID)
	case shape == gpu.Monitor && len(d.ConsumesCounters) == 0:
		return "", nil
	case len(d.ConsumesCounters) != 1:
		return "", fmt.Errorf("consumes from %d counter sets, not from the one of its GPU", len(d.ConsumesCounters))
	}
	return d.ConsumesCounters[0].CounterSet, nil
}

// use returns the use that the device offers. The placement is the memory slices that the device consumes: there is no attribute
// for its size, and only devices with all attributes have one for its start.
func (d published) use() (gpu.Use, error) {
	shape, err := d.shape()
	if err != nil || shape != gpu.MIG {
		return gpu.Use{Shape: shape}, err
	}
	p := gpu.Placement{Profile: d.number(MIGProfileID, -1), Start: d.number(MIGStart, d.cost.Slices.First()), Size: d.cost.Slices.Count()}
	switch {
	case p.Profile < 0:
		return gpu.Use{}, fmt.Errorf("attribute %s: must be set", MIGProfileID)
	case p.Start < 0:
		return gpu.Use{}, errors.New("consumes no memory slices")
	}
	return gpu.Use{Shape: gpu.MIG, Placement: p}, nil
}

// costOf returns the counters as a cost, and the memory slices whose counter is 0, which are withheld.
func costOf(counters map[string]resourceapi.Counter) (cost gpu.Cost, empty gpu.Mask) {
	for slice := range gpu.MaxSlices {
		if c, ok := counters[sliceCounter(slice)]; ok {
			cost.Slices |= gpu.SpanMask(slice, 1)
			if c.Value.Sign() <= 0 {
				empty |= gpu.SpanMask(slice, 1)
			}
		}
	}
	count := func(kind gpu.Engine) int {
		c := counters[kind.String()]
		return int(max(0, c.Value.Value()))
	}
	cost.Engines = gpu.Engines{
		OFA: count(gpu.OFA), JPEG: count(gpu.JPEG), Decoder: count(gpu.Decoder), Encoder: count(gpu.Encoder), Copy: count(gpu.Copy),
	}
	return cost, empty
}

// engines returns the engines of the device from its capacities. A compact device does not have them; the result is then what
// it consumes, which has the binding kinds only.
func (d published) engines() gpu.Engines {
	if _, has := d.Capacity[CopyEngines]; !has {
		return d.cost.Engines
	}
	count := func(name resourceapi.QualifiedName) int { return int(d.capacity(name)) }
	return gpu.Engines{
		OFA: count(OFAEngines), JPEG: count(JPEGEngines), Decoder: count(Decoders), Encoder: count(Encoders), Copy: count(CopyEngines),
	}
}

// profile returns the MIG profile of the device, with its one start. The number of compute slices is the number with which the
// profile's name begins; 0 if it begins otherwise.
func (d published) profile(p gpu.Placement) gpu.Profile {
	name := d.text(Profile)
	before, _, _ := strings.Cut(name, "g.")
	computeSlices, err := strconv.Atoi(before)
	if err != nil {
		computeSlices = 0
	}
	return gpu.Profile{
		ID: p.Profile, Name: name, ComputeSlices: computeSlices, Size: p.Size, Starts: []int{p.Start},
		Multiprocessors: int(d.capacity(Multiprocessors)), MemoryBytes: uint64(d.capacity(Memory)), Engines: d.engines(),
	}
}

// applyTo sets the fields of the GPU that the device's attributes and capacities have. Fields that it does not have are kept,
// because devices of one GPU have different attributes.
func (d published) applyTo(g *gpu.GPU, shape gpu.Shape) {
	g.UUID = d.uuid()
	g.Index = d.number(Index, g.Index)
	g.Minor = d.number(Minor, g.Minor)
	g.NUMA = d.number(NUMANode, g.NUMA)
	for _, known := range []struct {
		field *string
		name  resourceapi.QualifiedName
	}{
		{&g.Product, ProductName}, {&g.Brand, Brand}, {&g.Architecture, Architecture},
		{&g.PCI, PCIBusID}, {&g.PCIeRoot, PCIeRoot}, {&g.Clique, Clique}, {&g.IOMMUGroup, IOMMUGroup},
	} {
		*known.field = cmp.Or(d.text(known.name), *known.field)
	}
	if mode := d.text(ECCMode); mode != "" {
		g.ECC = new(mode == eccMode(true))
	}
	if links, err := DecodeLinks(d.text(Links)); err == nil && len(links) > 0 {
		g.Links = links
	}
	if capability := d.version(ComputeCapability); capability != "" {
		var patch int
		// An invalid version leaves zeros, like a missing one.
		_, _ = fmt.Sscanf(capability, "%d.%d.%d", &g.ComputeMajor, &g.ComputeMinor, &patch)
	}
	if shape != gpu.MIG && shape != gpu.Monitor {
		g.MemoryBytes = max(g.MemoryBytes, uint64(d.capacity(Memory)))
		g.Multiprocessors = max(g.Multiprocessors, int(d.capacity(Multiprocessors)))
	}
	if shape.Shared() {
		g.ShareableBytes = max(g.ShareableBytes, uint64(d.capacity(Memory)))
	}
}

// readGPU reads the devices of one GPU. counters is its counter set; nil if it is not published.
//
// The first pass collects profiles and attributes, from which the geometry is derived. The second pass verifies that each
// device consumes exactly what its use costs in that geometry. Only such devices are returned as devices of the GPU; all others
// are returned as invalid. An error wraps gpu.ErrTooLarge.
func (o *offers) readGPU(name string, devices []published, counters map[string]resourceapi.Counter) (PublishedGPU, []InvalidDevice, error) {
	g := PublishedGPU{Name: name, GPU: gpu.GPU{NUMA: -1}}
	var strange []InvalidDevice
	var profiles profiles
	uses := make(map[string]gpu.Use, len(devices))
	for _, d := range devices {
		use, err := d.useOf(name, counters, &profiles)
		if err != nil {
			strange = append(strange, InvalidDevice{d.Name, err})
			continue
		}
		uses[d.Name] = use
		d.applyTo(&g.GPU, use.Shape)
		if use.Shape.Shared() {
			g.Shares = max(g.Shares, int(d.capacity(Shares)))
			if enforced := d.text(MemoryEnforced); enforced != "" {
				if g.MemoryEnforced == nil {
					g.MemoryEnforced = map[gpu.Shape]string{}
				}
				g.MemoryEnforced[use.Shape] = enforced
			}
		}
	}
	total, withheld := costOf(counters)
	known := map[taint]bool{}
	geometry, err := o.geometryOf(profiles, total)
	if errors.Is(err, gpu.ErrTooLarge) {
		return g, nil, fmt.Errorf("GPU %q: %w", name, err)
	}
	g.GPU.Geometry, g.GPU.Withheld = geometry, withheld
	for _, d := range devices {
		use, ok := uses[d.Name]
		if !ok {
			continue
		}
		if err := errors.Join(err, costs(geometry, use, d)); err != nil {
			strange = append(strange, InvalidDevice{d.Name, err})
			continue
		}
		g.add(PublishedDevice{Name: d.Name, Use: use, Taints: d.Taints}, known)
	}
	return g, strange, nil
}

// useOf returns the use of a device of a GPU, whose counter set has the name and the counters, and adds its MIG profile to
// the profiles.
func (d published) useOf(name string, counters map[string]resourceapi.Counter, profiles *profiles) (gpu.Use, error) {
	use, err := d.use()
	switch {
	case err != nil:
		return use, err
	case use.Shape != gpu.Monitor && counters == nil:
		return use, fmt.Errorf("counter set %q: not published", name)
	case use.Shape == gpu.MIG:
		return use, profiles.add(d.profile(use.Placement))
	}
	return use, nil
}

// taint identifies a taint.
type taint struct {
	key, value string
	effect     resourceapi.DeviceTaintEffect
	// added is when the taint was added, in nanoseconds; 0 if that is unknown.
	added int64
}

// add adds a device, and its taints, except those in known, to those of the GPU and to known.
func (g *PublishedGPU) add(d PublishedDevice, known map[taint]bool) {
	g.Devices = append(g.Devices, d)
	for _, t := range d.Taints {
		id := taint{key: t.Key, value: t.Value, effect: t.Effect}
		if t.TimeAdded != nil {
			id.added = t.TimeAdded.UnixNano()
		}
		if !known[id] {
			known[id] = true
			g.Taints = append(g.Taints, t)
		}
	}
}

// costs returns an error if the device does not consume what its use costs.
func costs(geometry *gpu.Geometry, use gpu.Use, d published) error {
	cost, err := geometry.Cost(use)
	if err != nil {
		return err
	}
	if consumed := d.cost; consumed != cost {
		return fmt.Errorf("consumes memory slices %v and engines %+v, its use as %v costs %v and %+v", consumed.Slices, consumed.Engines, use, cost.Slices, cost.Engines)
	}
	return nil
}
