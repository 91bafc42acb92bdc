package wire

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

// capacities collects the capacities of one device.
type capacities map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

// capacity returns the capacities of a use of the GPU.
//
// A shared device has only capacities with a request policy that has a default. The allocator would consume any other capacity
// completely for the first claim that does not request it (KEP-5075).
func (s source) capacity(u gpu.Use) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	c := capacities{}
	switch u.Shape {
	case gpu.Whole, gpu.VFIO:
		c.bytes(Memory, s.gpu.MemoryBytes)
		if s.gpu.Multiprocessors > 0 {
			c.count(Multiprocessors, s.gpu.Multiprocessors)
		}
		if s.gpu.Geometry != nil {
			c.engines(s.gpu.Geometry.Capacity())
		}
	case gpu.MIG:
		profile, _ := s.gpu.Geometry.Profile(u.Placement.Profile)
		c.bytes(Memory, profile.MemoryBytes)
		c.count(Multiprocessors, profile.Multiprocessors)
		if s.complete(u.Shape) {
			c.engines(profile.Engines)
		}
	case gpu.TimeShare, gpu.MPS:
		if s.options.Consumable != ConsumeWhole {
			c.consumable(s.gpu.MemoryBytes, s.options)
			break
		}
		c.share(s.shareable(), s.options.Offer.Shares)
		if u.Shape == gpu.MPS {
			c.percent(Compute)
		}
	case gpu.None, gpu.Monitor:
		return nil
	}
	return c
}

// shareable returns the memory that the claims of a shared shape can have together, at least what claims have since before it was known.
func (s source) shareable() uint64 { return max(s.gpu.Shareable(), s.options.Allocated[s.gpu.Name()]) }

func (c capacities) bytes(name resourceapi.QualifiedName, n uint64) {
	c[name] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(n), resource.BinarySI)}
}

func (c capacities) count(name resourceapi.QualifiedName, n int) {
	c[name] = resourceapi.DeviceCapacity{Value: *quantity(int64(n))}
}

// engines adds all engine kinds, also with 0: a CEL expression that reads a missing capacity is an error, and not a mismatch.
func (c capacities) engines(e gpu.Engines) {
	c.count(CopyEngines, e.Copy)
	c.count(Decoders, e.Decoder)
	c.count(Encoders, e.Encoder)
	c.count(JPEGEngines, e.JPEG)
	c.count(OFAEngines, e.OFA)
}

// share adds the capacities that claims consume of a shared GPU: memory in steps of 1Gi, by default an equal part for each
// share, and shares, by default one. total is in bytes. A GPU with less than 2Gi has no valid range; by default its memory is
// given as a whole.
func (c capacities) share(total uint64, shares int) {
	if total >= 2*gi {
		total = total / gi * gi // a claim has whole steps
	}
	memory := resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(total), resource.BinarySI)}
	memory.RequestPolicy = &resourceapi.CapacityRequestPolicy{Default: new(memory.Value.DeepCopy())}
	if total >= 2*gi {
		part := max(1, int64(total)/int64(shares)/gi) * gi
		memory.RequestPolicy.Default = resource.NewQuantity(part, resource.BinarySI)
		memory.RequestPolicy.ValidRange = &resourceapi.CapacityRequestPolicyRange{
			Min:  resource.NewQuantity(gi, resource.BinarySI),
			Step: resource.NewQuantity(gi, resource.BinarySI),
		}
	}
	c[Memory] = memory

	c.shares(shares)
}

// shares adds the shares, of which a claim takes one by default.
func (c capacities) shares(n int) {
	// The API server requires that the minimum plus one step is within the capacity, so that a single share has no step.
	span := &resourceapi.CapacityRequestPolicyRange{Min: quantity(1)}
	if n > 1 {
		span.Step = quantity(1)
	}
	c[Shares] = resourceapi.DeviceCapacity{
		Value:         *quantity(int64(n)),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: quantity(1), ValidRange: span},
	}
}

// consumable adds the capacities that claims consume of a device of type gpu: memory in steps of 1Mi, and the shares if these are limited. total is in
// bytes.
func (c capacities) consumable(total uint64, o Options) {
	memory := *resource.NewQuantity(int64(total/mi*mi), resource.BinarySI)
	policy := &resourceapi.CapacityRequestPolicy{
		Default:    resource.NewQuantity(0, resource.BinarySI),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: resource.NewQuantity(0, resource.BinarySI), Step: resource.NewQuantity(mi, resource.BinarySI)},
	}
	if o.Consumable == ConsumeMemory {
		policy.Default, policy.ValidRange.Min = new(memory.DeepCopy()), resource.NewQuantity(mi, resource.BinarySI)
	}
	c[Memory] = resourceapi.DeviceCapacity{Value: memory, RequestPolicy: policy}
	if o.Offer.Shares > 0 {
		c.shares(o.Offer.Shares)
	}
}

// percent adds a limit in percent with the default 0, which means no limit.
func (c capacities) percent(name resourceapi.QualifiedName) {
	c[name] = resourceapi.DeviceCapacity{
		Value: *quantity(100),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    quantity(0),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity(0), Step: quantity(1)},
		},
	}
}

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }
