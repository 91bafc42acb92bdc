package gpu

import (
	"cmp"
	"slices"
)

// Value returns what the free memory slices of a GPU are worth: the sum of the sizes of all legal placements that do not
// overlap the taken mask. It is 0 for a nil Geometry.
//
// The loss of a placement is the value that it removes. Placing with the least loss keeps the most alternatives for later
// claims. Example: on an empty H100 a 1g.10gb loses least at memory slice 6, because no 2g.20gb starts there and no 4g.40gb
// covers it.
func (g *Geometry) Value(taken Mask) int {
	if g == nil {
		return 0
	}
	value := 0
	for _, p := range g.placements {
		if !p.Mask().Overlaps(taken) {
			value += p.Size
		}
	}
	return value
}

// ByLoss returns the placements of the profile by ascending loss on an empty GPU; ties by ascending start.
func (g *Geometry) ByLoss(id int) []Placement {
	if g == nil {
		return nil
	}
	return of(id, g.preferred)
}

// byLoss returns all placements, with those of each profile in ascending order of loss. The profiles keep their order.
func (g *Geometry) byLoss() []Placement {
	preferred := slices.Clone(g.placements)
	position := map[int]int{}
	for i := range g.profiles {
		position[g.profiles[i].ID] = i
	}
	left := map[Mask]int{}
	for _, p := range g.placements {
		left[p.Mask()] = g.Value(p.Mask())
	}
	slices.SortStableFunc(preferred, func(a, b Placement) int {
		return cmp.Or(cmp.Compare(position[a.Profile], position[b.Profile]), cmp.Compare(left[b.Mask()], left[a.Mask()]))
	})
	return preferred
}
