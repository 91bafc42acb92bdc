package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Layout returns a placement for each of the profiles, given by id and as often as they are wanted,
// beside what the occupancy holds. Every order in which they could be placed is tried, so that an error
// means that no way exists: it wraps ErrOccupied, or ErrUnsupported for a profile that the geometry does
// not know. Of several layouts it is one whose large profiles take the placements of least loss; it
// depends only on the arguments, and is by ascending start.
func (g *Geometry) Layout(o Occupancy, profiles []int) ([]Placement, error) {
	wanted := slices.Clone(profiles)
	for _, id := range wanted {
		if g.index(id) < 0 {
			return nil, fmt.Errorf("lay out profile %d: no such MIG profile: %w", id, ErrUnsupported)
		}
	}
	// Large ones first, equal ones together: what cannot fit shows early, and equal profiles are not
	// exchanged with each other.
	slices.SortFunc(wanted, func(a, b int) int { return cmp.Compare(g.index(b), g.index(a)) })
	l := layout{geometry: g, wanted: wanted}
	if !l.place(o, 0, 0) {
		return nil, fmt.Errorf("lay out %s: no order of placements fits: %w", g.names(wanted), ErrOccupied)
	}
	slices.SortFunc(l.placed, func(a, b Placement) int { return cmp.Compare(a.Start, b.Start) })
	return l.placed, nil
}

// layout is a search for placements.
type layout struct {
	geometry *Geometry
	wanted   []int
	placed   []Placement
}

// place places what is wanted after those that are placed, and reports whether that is possible. first
// is the least choice, in order of loss, of the next one: equal profiles take theirs in that order.
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

// names lists profiles by name for messages, each with how often it is wanted; equal ones are
// neighbours.
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
