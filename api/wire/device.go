package wire

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// source has one GPU of a node and everything from which its devices are encoded.
type source struct {
	node    gpu.Node
	gpu     gpu.GPU
	island  int
	options Options
}

// device returns the published form of one use of the GPU.
func (s source) device(u gpu.Use) (resourceapi.Device, error) {
	cost, err := s.gpu.Geometry.Cost(u)
	if err != nil {
		return resourceapi.Device{}, fmt.Errorf("encode %s: %w", s.gpu.Name(), err)
	}
	d := resourceapi.Device{
		Name:             DeviceName(gpu.Device{GPU: s.gpu.Name(), Use: u}),
		Attributes:       s.attributes(u),
		Capacity:         s.capacity(u),
		ConsumesCounters: s.consumption(u, cost),
		Taints:           s.taints(u),
	}
	if u.Shape.Shared() {
		d.AllowMultipleAllocations = new(true)
	}
	return d, nil
}

func (s source) attributes(u gpu.Use) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	a := attributes{}
	s.identity(a, u)
	if u.Shape == gpu.TimeShare || u.Shape == gpu.MPS {
		a.text(MemoryEnforced, enforced(s.gpu.Limiter.Limits(u.Shape)))
	}
	if s.complete(u.Shape) {
		s.details(a)
		if u.Shape != gpu.MIG && u.Shape != gpu.Monitor {
			s.fabric(a)
		}
	}
	return a
}

// typeOf returns the shape whose name is the type of a device of the shape.
func (s source) typeOf(shape gpu.Shape) gpu.Shape {
	if shape == gpu.TimeShare && s.options.Consumable != ConsumeWhole {
		return gpu.Whole
	}
	return shape
}

// complete reports whether devices of the shape have all attributes and capacities of the GPU. Devices of type vfio never do:
// without a driver the rest is unknown.
func (s source) complete(shape gpu.Shape) bool {
	return shape != gpu.VFIO && (s.options.Full || s.typeOf(shape) == gpu.Whole)
}

// identity adds the attributes that every device has: what it is and where it is. A compact MIG device has at most 8, the
// capacity of the smallest map of Go: a map of 9 takes twice the memory, in every reader, for each of hundreds of devices of a
// node. MIGStart is not among them, so that all placements of a profile on a GPU have equal attributes.
func (s source) identity(a attributes, u gpu.Use) {
	a.text(Type, s.typeOf(u.Shape).String())
	a.text(ProductName, s.gpu.Product)
	a.number(Index, s.gpu.Index)
	a.text(PCIeRoot, s.gpu.PCIeRoot)
	if s.gpu.NUMA >= 0 {
		a.number(NUMANode, s.gpu.NUMA)
	}
	switch u.Shape {
	case gpu.VFIO: // without a driver there is no UUID; KubeVirt reads the address
		a.text(PCIBusID, s.gpu.PCI)
		a.text(IOMMUGroup, s.gpu.IOMMUGroup)
		return
	case gpu.None, gpu.Whole, gpu.TimeShare, gpu.MPS, gpu.Monitor:
		a.text(UUID, s.gpu.UUID)
		return
	case gpu.MIG:
	}
	profile, _ := s.gpu.Geometry.Profile(u.Placement.Profile)
	a.text(ParentUUID, s.gpu.UUID)
	a.text(Profile, profile.Name)
	a.number(MIGProfileID, profile.ID)
	if s.complete(u.Shape) {
		a.number(MIGStart, u.Placement.Start)
	}
}

// details adds the attributes that are equal for all uses of the GPU.
func (s source) details(a attributes) {
	a.text(Brand, s.gpu.Brand)
	a.text(Architecture, s.gpu.Architecture)
	if s.gpu.ComputeMajor > 0 {
		a.version(ComputeCapability, fmt.Sprintf("%d.%d", s.gpu.ComputeMajor, s.gpu.ComputeMinor))
	}
	a.version(DriverVersion, s.node.DriverVersion)
	a.version(CUDADriverVersion, s.node.CUDAVersion)
	a.text(PCIBusID, s.gpu.PCI)
	a.number(Minor, s.gpu.Minor)
	if s.gpu.ECC != nil {
		a.text(ECCMode, eccMode(*s.gpu.ECC))
	}
}

func eccMode(on bool) string {
	if on {
		return "Enabled"
	}
	return "Disabled"
}

// enforced is the value of MemoryEnforced.
func enforced(hard bool) string {
	if hard {
		return "hard"
	}
	return "none"
}

// fabric adds the connections to other GPUs. MIG devices have none, since they have no peer access.
func (s source) fabric(a attributes) {
	if s.island >= 0 {
		a.number(LinkIsland, s.island)
	}
	a.text(Links, EncodeLinks(s.gpu, len(s.node.GPUs)))
	a.text(Clique, s.gpu.Clique)
}
