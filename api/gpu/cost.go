package gpu

import "fmt"

// Cost is what a use takes from its GPU. Uses of different shapes exclude each other, and MIG placements fit together if and
// only if the sum of their costs fits. Package wire publishes costs as counters, so that every DRA allocator applies the same
// rule.
type Cost struct {
	// Slices are the memory slices taken. A GPU without MIG counts as one memory slice.
	Slices Mask
	// Engines are the engines taken, of the binding kinds only (Geometry.BindingEngines). Other kinds are zero.
	Engines Engines
}

// Cost returns what the use takes: the memory slices and engines of a placement for MIG, nothing for Monitor, and the whole GPU
// for every other shape. It works on a nil Geometry.
//
// An error wraps ErrUnsupported: the use has no shape, or its placement is not legal on this geometry.
func (g *Geometry) Cost(u Use) (Cost, error) {
	switch u.Shape {
	case MIG:
		profile, err := g.legal(u.Placement)
		if err != nil {
			return Cost{}, err
		}
		return Cost{Slices: u.Placement.Mask(), Engines: g.engines[profile]}, nil
	case Whole, TimeShare, MPS, VFIO:
		return g.Total(), nil
	case Monitor:
		return Cost{}, nil
	case None:
	}
	return Cost{}, fmt.Errorf("%v: %w", u, ErrUnsupported)
}

// Total returns the cost of a whole GPU. It works on a nil Geometry.
func (g *Geometry) Total() Cost {
	return Cost{Slices: g.mask(), Engines: g.Capacity().only(g.kinds())}
}

// mask returns all memory slices; a GPU without MIG counts as one. It works on a nil Geometry.
func (g *Geometry) mask() Mask { return SpanMask(0, max(1, g.Slices())) }

// kinds returns the binding kinds without a copy. It works on a nil Geometry.
func (g *Geometry) kinds() []Engine {
	if g == nil {
		return nil
	}
	return g.binding
}
