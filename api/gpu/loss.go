package gpu

import (
	"cmp"
	"slices"
)

// Value is what the free slices of a GPU are still worth: over all profiles, the slices of the legal
// placements that fit outside the mask. The loss of a placement is the value it takes away.
func (g *Geometry) Value(taken Mask) int {
	value := 0
	for _, p := range g.Profiles() {
		for _, placement := range g.Placements(p.ID) {
			if !placement.Mask().Overlaps(taken) {
				value += p.Size
			}
		}
	}
	return value
}

// ByLoss returns the placements of the profile, the one that takes the least value from an empty
// GPU first; ties by ascending start.
func (g *Geometry) ByLoss(id int) []Placement {
	placements := g.Placements(id)
	slices.SortStableFunc(placements, func(a, b Placement) int {
		return cmp.Compare(g.Value(b.Mask()), g.Value(a.Mask()))
	})
	return placements
}
