package gpu

import "slices"

// Device is what one allocation result names: a use of one GPU.
type Device struct {
	// GPU is the name of the GPU (GPU.Name).
	GPU string `json:"gpu"`
	Use
}

// Offer is what the NodeConfig permits on a node.
type Offer struct {
	// Shapes are the permitted shapes. Order and repetition have no effect.
	Shapes []Shape
	// Profiles are the names of the permitted MIG profiles; empty permits all. Names depend on the driver version.
	Profiles []string
	// Shares is the number of shares of each GPU in a shared shape; 0 is no limit.
	Shares int
	// Enforced permits shared shapes only where the driver limits the memory of each share.
	Enforced bool
}

// Devices returns all devices that the node offers, GPU by GPU in order of index, within a GPU in the order in which a
// first-fit allocator should try them: MIG profiles from small to large, within a profile the placement of least loss first
// (Geometry.ByLoss), then the shared shapes, the whole GPU, VFIO, and the monitor.
//
// The order depends only on the arguments. It is the published order, so that kube-scheduler's in-tree allocator prefers the
// same placements as Tessera's plugin.
func (n Node) Devices(offer Offer) []Device {
	var devices []Device
	for _, g := range n.GPUs {
		for _, use := range g.Uses(offer) {
			devices = append(devices, Device{GPU: g.Name(), Use: use})
		}
	}
	return devices
}

// Uses returns the uses of the GPU that the offer permits and that need no GPU reset, in the order of Node.Devices. Before
// Hopper, where a change of the MIG mode needs a reset, only the shapes of the current mode are returned.
func (g GPU) Uses(offer Offer) []Use {
	return slices.DeleteFunc(g.AllUses(), func(u Use) bool {
		return !g.serves(u.Shape) || !g.offered(u, offer)
	})
}

// AllUses returns all uses that the GPU's hardware has, in the order of Node.Devices. Neither the current MIG mode nor an offer
// limits it, so that a device allocated under an earlier mode or offer is still found in it.
func (g GPU) AllUses() []Use {
	var uses []Use
	if g.Geometry != nil {
		for _, p := range g.Geometry.preferred {
			uses = append(uses, Use{Shape: MIG, Placement: p})
		}
	}
	for _, shape := range []Shape{TimeShare, MPS, Whole, VFIO, Monitor} {
		uses = append(uses, Use{Shape: shape})
	}
	return uses
}

// serves reports whether the GPU can take the shape without a reset.
//
// VFIO needs an IOMMU group. All other shapes need a UUID: a GPU without one is not bound to NVIDIA's driver, or was lost
// before its first read, so that nothing is known about its hardware.
func (g GPU) serves(shape Shape) bool {
	if shape == VFIO {
		return g.IOMMUGroup != ""
	}
	if g.UUID == "" {
		return false
	}
	switch shape {
	case MIG:
		return g.TogglesMIG() || g.Mode == ModeEnabled
	case Whole, TimeShare, MPS:
		return g.TogglesMIG() || g.Mode != ModeEnabled
	case Monitor:
		return true
	case None, VFIO:
	}
	return false
}

// offered reports whether the offer permits the use. The placement of a MIG use must be legal.
func (g GPU) offered(u Use, offer Offer) bool {
	if !slices.Contains(offer.Shapes, u.Shape) || offer.Enforced && u.Shape.Shared() && !g.Limiter.Limits(u.Shape) {
		return false
	}
	if u.Shape != MIG || len(offer.Profiles) == 0 {
		return true
	}
	profile, _ := g.Geometry.Profile(u.Placement.Profile)
	return slices.Contains(offer.Profiles, profile.Name)
}
