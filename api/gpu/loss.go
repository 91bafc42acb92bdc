package gpu

import (
	"cmp"
	"slices"
)

// Value is what the free slices of a GPU are still worth: over all profiles, the slices of the legal
// placements that fit outside the mask. The loss of a placement is the value it takes away.
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

// ByLoss returns the placements of the profile, the one that takes the least value from an empty
// GPU first; ties by ascending start.
func (g *Geometry) ByLoss(id int) []Placement {
	if g == nil {
		return nil
	}
	return of(id, g.preferred)
}

// byLoss returns the placements with those of each profile in order of loss. The profiles keep
// their order.
func (g *Geometry) byLoss() []Placement {
	preferred := slices.Clone(g.placements)
	slices.SortStableFunc(preferred, func(a, b Placement) int {
		return cmp.Or(cmp.Compare(g.index(a.Profile), g.index(b.Profile)), cmp.Compare(g.Value(b.Mask()), g.Value(a.Mask())))
	})
	return preferred
}
