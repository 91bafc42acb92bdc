package gpu

import "fmt"

// Occupancy is what one GPU holds: a value, so that trying and undoing are assignments. The
// zero Occupancy belongs to no GPU; Geometry.Empty makes one.
type Occupancy struct {
	geometry *Geometry
	shape    Shape
	taken    Mask
	withheld Mask
	engines  Engines
	holders  int
}

// Empty returns the occupancy of a GPU that holds nothing. It works on a nil Geometry.
func (g *Geometry) Empty() Occupancy { return Occupancy{geometry: g} }

// Shape returns the current shape; None when nothing is held.
func (o Occupancy) Shape() Shape { return o.shape }

// Taken returns the memory slices that are held.
func (o Occupancy) Taken() Mask { return o.taken }

// Withheld returns the slices that nobody may take.
func (o Occupancy) Withheld() Mask { return o.withheld }

// Free returns the memory slices that can still be taken by a MIG placement.
func (o Occupancy) Free() Mask {
	if o.shape != None && o.shape != MIG {
		return 0
	}
	return o.all() &^ (o.taken | o.withheld)
}

// Holders returns how many uses are held: instances, shares, or one for a whole GPU.
func (o Occupancy) Holders() int { return o.holders }

// Withhold returns the occupancy with the slices kept from everybody, because something that is not
// ours lives there or could not be destroyed. What is held already stays held.
func (o Occupancy) Withhold(m Mask) Occupancy {
	o.withheld |= m & o.all()
	return o
}

// Take returns the occupancy with the use added. An error wraps ErrOccupied and names the conflict,
// or ErrUnsupported when the GPU can never hold the use; the receiver is unchanged. Taking a monitor
// changes nothing.
func (o Occupancy) Take(u Use) (Occupancy, error) {
	switch u.Shape {
	case MIG:
		return o.takePlacement(u.Placement)
	case Whole, TimeShare, MPS, VFIO:
		return o.takeAll(u.Shape)
	case Monitor:
		return o, nil
	case None:
	}
	return o, fmt.Errorf("take %v: %w", u, ErrUnsupported)
}

func (o Occupancy) takeAll(s Shape) (Occupancy, error) {
	switch {
	case o.withheld != 0:
		return o, fmt.Errorf("take %v: memory slices %v are withheld: %w", s, o.withheld, ErrOccupied)
	case o.shape == s && s.shared():
		o.holders++
		return o, nil
	case o.shape != None:
		return o, fmt.Errorf("take %v: the GPU is in use as %v: %w", s, o.shape, ErrOccupied)
	}
	o.shape, o.taken, o.holders = s, o.all(), 1
	return o, nil
}

func (o Occupancy) takePlacement(p Placement) (Occupancy, error) {
	profile, err := o.geometry.Legal(p)
	if err != nil {
		return o, err
	}
	switch {
	case o.shape != None && o.shape != MIG:
		return o, fmt.Errorf("take %v: the GPU is in use as %v: %w", p, o.shape, ErrOccupied)
	case p.Mask().Overlaps(o.withheld):
		return o, fmt.Errorf("take %v: memory slices %v are withheld: %w", p, o.withheld&p.Mask(), ErrOccupied)
	case p.Mask().Overlaps(o.taken):
		return o, fmt.Errorf("take %v: memory slices %v are taken: %w", p, o.taken&p.Mask(), ErrOccupied)
	}
	engines := o.engines.plus(profile.Engines)
	for _, kind := range o.geometry.binding {
		if engines.Count(kind) > o.geometry.capacity.Count(kind) {
			return o, fmt.Errorf("take %v: needs %d %v, %d left: %w", p, profile.Engines.Count(kind), kind,
				o.geometry.capacity.Count(kind)-o.engines.Count(kind), ErrOccupied)
		}
	}
	o.shape, o.taken, o.engines, o.holders = MIG, o.taken|p.Mask(), engines, o.holders+1
	return o, nil
}

// Release is the inverse of Take: it returns the occupancy without the use, and an error when the
// use is not held.
func (o Occupancy) Release(u Use) (Occupancy, error) {
	if u.Shape == Monitor {
		return o, nil
	}
	if u.Shape != o.shape || o.holders == 0 {
		return o, fmt.Errorf("release %v: not held, the GPU is %v", u, o.shape)
	}
	if u.Shape == MIG {
		profile, err := o.geometry.Legal(u.Placement)
		if err != nil {
			return o, err
		}
		if o.taken&u.Placement.Mask() != u.Placement.Mask() {
			return o, fmt.Errorf("release %v: not held", u)
		}
		o.taken &^= u.Placement.Mask()
		o.engines = o.engines.minus(profile.Engines)
	}
	if o.holders--; o.holders == 0 {
		o.shape, o.taken, o.engines = None, 0, Engines{}
	}
	return o, nil
}

// all returns the mask of every memory slice; a GPU without MIG counts as one slice.
func (o Occupancy) all() Mask { return SpanMask(0, max(1, o.geometry.Slices())) }
