package gpu

import "fmt"

// Cost is what a use takes from its GPU. Two uses fit together only when the sum of their costs
// does; the published counters say the same.
type Cost struct {
	// Slices are the memory slices; a GPU without MIG counts as one slice.
	Slices Mask
	// Engines are the engines of the kinds that bind (Geometry.BindingEngines); the others are zero.
	Engines Engines
}

// Cost returns what the use takes: a placement its slices and engines, every other shape all there
// is, a monitor nothing. An error wraps ErrUnsupported: the GPU can never hold the use. It works on a
// nil Geometry.
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

// Total returns all that a GPU has, which is what a whole GPU costs. It works on a nil Geometry.
func (g *Geometry) Total() Cost {
	return Cost{Slices: g.mask(), Engines: g.Capacity().only(g.kinds())}
}

// mask returns all memory slices; a GPU without MIG counts as one. It works on a nil Geometry.
func (g *Geometry) mask() Mask { return SpanMask(0, max(1, g.Slices())) }

// kinds returns what BindingEngines copies.
func (g *Geometry) kinds() []Engine {
	if g == nil {
		return nil
	}
	return g.binding
}
