package gpu

import "fmt"

// Occupancy is what one GPU holds: a value, so that trying and undoing are assignments, and two that
// hold the same are equal (==). The zero Occupancy belongs to no GPU; Geometry.Empty makes one.
type Occupancy struct {
	geometry *Geometry
	shape    Shape
	taken    Mask
	withheld Mask
	engines  Engines
	holders  int
	// total is what there is to share out, shared what is.
	total, shared Share
	// held has, at the first slice of each placement held, the position of its profile plus one.
	held [MaxSlices]uint16
}

// Empty returns the occupancy of a GPU that holds nothing and whose shares nobody counts. It works on a
// nil Geometry.
func (g *Geometry) Empty() Occupancy { return Occupancy{geometry: g} }

// Empty returns the occupancy of the GPU when it holds nothing and may be shared by so many claims.
func (g GPU) Empty(shares int) Occupancy {
	return Occupancy{geometry: g.Geometry, total: Share{MemoryBytes: g.MemoryBytes, Shares: shares, Compute: 100}}
}

// Shape returns the current shape; None when nothing is held.
func (o Occupancy) Shape() Shape { return o.shape }

// Taken returns the memory slices that are held.
func (o Occupancy) Taken() Mask { return o.taken }

// Withheld returns the slices that nobody may take.
func (o Occupancy) Withheld() Mask { return o.withheld }

// Free returns the memory slices that can still be taken by a MIG placement.
func (o Occupancy) Free() Mask { return o.all() &^ (o.taken | o.withheld) }

// Engines returns the engines that are held, of the kinds that bind (Geometry.BindingEngines).
func (o Occupancy) Engines() Engines { return o.engines }

// Holders returns how many uses are held: instances, shares, or one for a whole GPU.
func (o Occupancy) Holders() int { return o.holders }

// Placements returns the placements that are held, by start.
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

// Shared returns what the holders of a shared shape have taken together.
func (o Occupancy) Shared() Share { return o.shared }

// Total returns what a shared shape has to give when nothing is shared out; zero limits nothing.
func (o Occupancy) Total() Share { return o.total }

// Left returns what a shared shape has left to give, at most the whole; the largest numbers where nobody
// counts.
func (o Occupancy) Left() Share { return o.shared.left(o.total) }

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

// Fits reports whether Take would succeed, without the cost of saying why not.
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

// fitsPlacement is Fits for MIG: what most placements fail by comes before what makes an error.
func (o Occupancy) fitsPlacement(u Use) bool {
	if u.Placement.Mask().Overlaps(o.taken|o.withheld) || o.shape != None && o.shape != MIG {
		return false
	}
	cost, err := o.geometry.Cost(u)
	return err == nil && o.conflict(u, cost) == nil
}

// Idle reports whether the GPU holds nothing and nothing of it is withheld.
func (o Occupancy) Idle() bool { return o.shape == None && o.withheld == 0 }

// conflict returns why a use at this cost cannot be added, nil when it can.
func (o Occupancy) conflict(u Use, cost Cost) error {
	switch {
	case cost.Slices.Overlaps(o.withheld):
		return fmt.Errorf("memory slices %v are withheld: %w", cost.Slices&o.withheld, ErrOccupied)
	case o.shape != None && (o.shape != u.Shape || u.Shape != MIG && !u.Shape.Shared()):
		return fmt.Errorf("the GPU is in use as %v: %w", o.shape, ErrOccupied)
	case u.Shape.Shared():
		return u.Share.lacks(o.shared, o.total)
	case cost.Slices.Overlaps(o.taken):
		return fmt.Errorf("memory slices %v are taken: %w", cost.Slices&o.taken, ErrOccupied)
	case cost.Engines == Engines{}:
		return nil
	}
	left := o.geometry.Total().Engines.minus(o.engines)
	if kind, lacks := left.lacking(cost.Engines, o.geometry.kinds()); lacks {
		return fmt.Errorf("needs %d %v, %d left: %w", cost.Engines.Count(kind), kind, left.Count(kind), ErrOccupied)
	}
	return nil
}

// Release is the inverse of Take: it returns the occupancy without the use, and an error when the
// use is not held; the receiver is unchanged.
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

// position returns the mark of a legal placement's profile in held.
func (o Occupancy) position(p Placement) uint16 { return uint16(o.geometry.index(p.Profile) + 1) }

// all returns the mask of every memory slice; a GPU without MIG counts as one slice.
func (o Occupancy) all() Mask { return o.geometry.mask() }
