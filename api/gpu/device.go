package gpu

import "slices"

// Device is one thing that a claim can be given: a use of one GPU.
type Device struct {
	// GPU is the GPU's name.
	GPU string `json:"gpu"`
	Use
}

// Offer is what the administrator lets a node offer.
type Offer struct {
	// Shapes are the shapes offered.
	Shapes []Shape
	// Profiles are the names of the MIG profiles offered; empty offers all.
	Profiles []string
	// Shares is how many claims one GPU serves in a shared shape.
	Shares int
}

// Devices returns every device that the node offers, GPU by GPU in order of index, per GPU in the
// order that a first-fit scheduler should try: smallest profile first, within a profile the placement
// of least loss, then the shared shapes, then the whole GPU, then the monitor. The result depends only
// on the arguments.
func (n Node) Devices(offer Offer) []Device {
	var devices []Device
	for _, g := range n.GPUs {
		for _, use := range g.Uses(offer) {
			devices = append(devices, Device{GPU: g.Name(), Use: use})
		}
	}
	return devices
}

// Uses returns the uses of one GPU that the offer allows and the hardware can serve without a reset:
// a GPU whose MIG mode cannot change without one offers the shapes of its current mode only.
func (g GPU) Uses(offer Offer) []Use {
	return slices.DeleteFunc(g.AllUses(), func(u Use) bool {
		return !g.serves(u.Shape) || !g.offered(u, offer)
	})
}

// AllUses returns every use that the GPU's hardware knows, whether or not the current MIG mode and
// the administrator's offer allow it, in the order of Devices. It is the complete table of what a
// device of this GPU can stand for.
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

// serves reports whether the hardware can serve the shape without a reset. Of a GPU that was lost
// before it was ever read, nothing is known, and nothing can be promised.
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

func (g GPU) offered(u Use, offer Offer) bool {
	if !slices.Contains(offer.Shapes, u.Shape) {
		return false
	}
	if u.Shape != MIG || len(offer.Profiles) == 0 {
		return true
	}
	profile, _ := g.Geometry.Profile(u.Placement.Profile)
	return slices.Contains(offer.Profiles, profile.Name)
}
