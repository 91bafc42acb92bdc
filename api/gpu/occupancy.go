package gpu

import "fmt"

// Occupancy is what one GPU holds. It is a value: trying a use and undoing it are assignments, copies are independent, and
// occupancies of one Geometry with equal contents are equal (==), so that it can be a map key.
//
// The invariants: all holders have the same shape; MIG placements do not overlap and stay within the engine capacity; the
// shares of a shared shape stay within the total. An idle GPU has shape None; the first Take determines the shape and the last
// Release resets it.
//
// The zero Occupancy is that of a GPU without MIG; use Geometry.Empty or GPU.Empty.
type Occupancy struct {
	geometry *Geometry
	shape    Shape
	taken    Mask
	withheld Mask
	engines  Engines
	holders  int
	// total is what a shared shape can give to its holders, shared what they have taken.
	total, shared Share
	// held has, at the first memory slice of each placement, the position of its profile in geometry.profiles plus one; 0
	// elsewhere. An array instead of a list keeps the type comparable, and independent of the order of Takes.
	held [MaxSlices]uint16
}

// Empty returns the occupancy of an idle GPU that does not limit shares. It works on a nil Geometry.
func (g *Geometry) Empty() Occupancy { return Occupancy{geometry: g} }

// Empty returns the occupancy of the GPU when idle. In a shared shape it gives the shareable memory, the given number of shares,
// and 100 percent of the multiprocessors.
func (g GPU) Empty(shares int) Occupancy {
	return Occupancy{geometry: g.Geometry, total: Share{MemoryBytes: g.Shareable(), Shares: shares, Compute: 100}}
}

// Shape returns the current shape; None if the GPU is idle.
func (o Occupancy) Shape() Shape { return o.shape }

// Taken returns the memory slices that are held. All shapes except MIG hold all of them.
func (o Occupancy) Taken() Mask { return o.taken }

// Withheld returns the memory slices that cannot be allocated.
func (o Occupancy) Withheld() Mask { return o.withheld }

// Free returns the memory slices that are neither held nor withheld.
func (o Occupancy) Free() Mask { return o.all() &^ (o.taken | o.withheld) }

// Engines returns the engines that are held, of the binding kinds only (Geometry.BindingEngines).
func (o Occupancy) Engines() Engines { return o.engines }

// Holders returns the number of uses held: MIG devices, claims of a shared GPU, or one for a whole GPU.
func (o Occupancy) Holders() int { return o.holders }

// Placements returns the placements held, in order of start.
func (o Occupancy) Placements() []Placement {
	var held []Placement
	for start, position := range o.held {
		if position > 0 {
			profile := o.geometry.profiles[position-1]
			held = append(held, Placement{Profile: profile.ID, Start: start, Size: profile.Size})
		}
	}
	return held
}

// Shared returns the sum of the shares held.
func (o Occupancy) Shared() Share { return o.shared }

// Total returns what a shared shape can give when no share is held. A zero field does not limit.
func (o Occupancy) Total() Share { return o.total }

// Left returns what a shared shape can still give. A field that is not limited has the largest value of its type.
func (o Occupancy) Left() Share { return o.shared.left(o.total) }

// Withhold returns the occupancy with the memory slices withheld from allocation, because a foreign MIG device exists there or
// a MIG device could not be destroyed. Uses that are held remain held.
func (o Occupancy) Withhold(m Mask) Occupancy {
	o.withheld |= m & o.all()
	return o
}

// Take returns the occupancy with the use added. Taking a monitor changes nothing.
//
// An error wraps ErrOccupied and names the conflict, or wraps ErrUnsupported if the GPU can never hold the use. The receiver is
// returned unchanged then.
func (o Occupancy) Take(u Use) (Occupancy, error) {
	cost, err := o.geometry.Cost(u)
	if err != nil {
		return o, fmt.Errorf("take %w", err)
	}
	if u.Shape == Monitor {
		return o, nil
	}
	if err := o.conflict(u, cost); err != nil {
		return o, fmt.Errorf("take %v: %w", u, err)
	}
	if o.shape == None || u.Shape == MIG {
		o.shape, o.taken, o.engines = u.Shape, o.taken|cost.Slices, o.engines.plus(cost.Engines)
	}
	if u.Shape == MIG {
		o.held[u.Placement.Start] = o.position(u.Placement)
	}
	o.holders++
	o.shared = o.shared.plus(u.Share)
	return o, nil
}

// Fits reports whether Take would succeed. It rejects most uses without building an error, and so costs much less than Take;
// the scheduler plugin calls it for every candidate.
func (o Occupancy) Fits(u Use) bool {
	switch u.Shape {
	case MIG:
		return o.fitsPlacement(u)
	case Whole, VFIO:
		return o.Idle()
	case TimeShare, MPS:
		return (o.shape == u.Shape || o.shape == None) && o.withheld == 0 && u.Share.within(o.Left())
	case Monitor:
		return true
	case None:
	}
	return false
}

// fitsPlacement is Fits for MIG. The checks of masks come first: they reject most placements without an allocation.
func (o Occupancy) fitsPlacement(u Use) bool {
	if u.Placement.Mask().Overlaps(o.taken|o.withheld) || o.shape != None && o.shape != MIG {
		return false
	}
	cost, err := o.geometry.Cost(u)
	return err == nil && o.conflict(u, cost) == nil
}

// Idle reports whether the GPU holds nothing and no memory slice is withheld.
func (o Occupancy) Idle() bool { return o.shape == None && o.withheld == 0 }

// conflict returns an error that names why the use with the cost cannot be added; nil if it can.
func (o Occupancy) conflict(u Use, cost Cost) error {
	switch {
	case cost.Slices.Overlaps(o.withheld):
		return fmt.Errorf("memory slices %v are withheld: %w", cost.Slices&o.withheld, ErrOccupied)
	case o.shape != None && (o.shape != u.Shape || u.Shape != MIG && !u.Shape.Shared()):
		return fmt.Errorf("the GPU is in use as %v: %w", o.shape, ErrOccupied)
	case u.Shape.Shared():
		return u.Share.lacks(o.shared, o.total)
	case cost.Slices.Overlaps(o.taken):
		return fmt.Errorf("memory slices %v are in use: %w", cost.Slices&o.taken, ErrOccupied)
	case cost.Engines == Engines{}:
		return nil
	}
	left := o.geometry.Total().Engines.minus(o.engines)
	if kind, lacks := left.lacking(cost.Engines, o.geometry.kinds()); lacks {
		return fmt.Errorf("needs %d %v, %d left: %w", cost.Engines.Count(kind), kind, left.Count(kind), ErrOccupied)
	}
	return nil
}

// Release returns the occupancy without the use; it is the inverse of Take. It is an error if the use is not held; the receiver
// is returned unchanged then. Releasing a monitor changes nothing.
func (o Occupancy) Release(u Use) (Occupancy, error) {
	if u.Shape == Monitor {
		return o, nil
	}
	if u.Shape == None || u.Shape != o.shape || !u.Share.within(o.shared) {
		return o, fmt.Errorf("release %v: not held, the GPU is %v", u, o.shape)
	}
	cost, err := o.geometry.Cost(u)
	if err != nil {
		return o, fmt.Errorf("release %w", err)
	}
	if u.Shape == MIG {
		if o.held[u.Placement.Start] != o.position(u.Placement) {
			return o, fmt.Errorf("release %v: not held", u)
		}
		o.held[u.Placement.Start] = 0
	}
	o.holders--
	o.shared = o.shared.minus(u.Share)
	if o.holders == 0 || u.Shape == MIG {
		o.taken, o.engines = o.taken&^cost.Slices, o.engines.minus(cost.Engines)
	}
	if o.holders == 0 {
		o.shape = None
	}
	return o, nil
}

// position returns the entry of a legal placement in held.
func (o Occupancy) position(p Placement) uint16 { return uint16(o.geometry.index(p.Profile) + 1) }

// all returns the mask of all memory slices; a GPU without MIG counts as one.
func (o Occupancy) all() Mask { return o.geometry.mask() }
