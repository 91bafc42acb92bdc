package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Layout returns placements for the profiles next to what the occupancy holds, in ascending order of start. profiles has ids;
// an id that is wanted n times is listed n times.
//
// The search is complete: an error that wraps ErrOccupied means that no layout exists. An error that wraps ErrUnsupported names
// a profile that the geometry does not have. If there are several layouts, large profiles get the placements of least loss. The
// result depends only on the arguments.
func (g *Geometry) Layout(o Occupancy, profiles []int) ([]Placement, error) {
	wanted := slices.Clone(profiles)
	for _, id := range wanted {
		if g.index(id) < 0 {
			return nil, fmt.Errorf("lay out profile %d: no such MIG profile: %w", id, ErrUnsupported)
		}
	}
	// Large profiles come first, so that a dead end is found early. Equal profiles are adjacent, so that place does not try
	// permutations of them.
	slices.SortFunc(wanted, func(a, b int) int { return cmp.Compare(g.index(b), g.index(a)) })
	l := layout{geometry: g, wanted: wanted}
	if !l.place(o, 0, 0) {
		return nil, fmt.Errorf("lay out %s: no order of placements fits: %w", g.names(wanted), ErrOccupied)
	}
	slices.SortFunc(l.placed, func(a, b Placement) int { return cmp.Compare(a.Start, b.Start) })
	return l.placed, nil
}

// layout is the state of a backtracking search: placed[i] is the placement of the profile with the id wanted[i].
type layout struct {
	geometry *Geometry
	wanted   []int
	placed   []Placement
}

// place places wanted[next:] into the occupancy and reports whether that is possible; l.placed then has all placements. On
// failure l.placed is unchanged.
//
// first is the lowest index into the placements of wanted[next], in order of loss, that may be tried. Of equal profiles each
// one takes a later index than the one before. That tries every set of placements once instead of once per permutation.
func (l *layout) place(o Occupancy, next, first int) bool {
	if next == len(l.wanted) {
		return true
	}
	choices := l.geometry.ByLoss(l.wanted[next])
	for i := first; i < len(choices); i++ {
		taken, err := o.Take(Use{Shape: MIG, Placement: choices[i]})
		if err != nil {
			continue
		}
		after := 0
		if next+1 < len(l.wanted) && l.wanted[next+1] == l.wanted[next] {
			after = i + 1
		}
		l.placed = append(l.placed, choices[i])
		if l.place(taken, next+1, after) {
			return true
		}
		l.placed = l.placed[:next]
	}
	return false
}

// names lists profiles in messages, such as "2 x 1g.10gb, 1 x 3g.40gb". Equal profiles must be adjacent.
func (g *Geometry) names(profiles []int) string {
	var parts []string
	for _, id := range slices.Compact(slices.Clone(profiles)) {
		n := 0
		for _, other := range profiles {
			if other == id {
				n++
			}
		}
		profile, _ := g.Profile(id)
		parts = append(parts, fmt.Sprintf("%d x %s", n, profile.Name))
	}
	return strings.Join(parts, ", ")
}
