package fleet

import (
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// None means no state.
const None = -1

// States are all possible states of a GPU of one geometry with the requested profiles, and the transitions
// between them by placement. State 0 is the empty GPU.
type States struct {
	Geometry *gpu.Geometry
	// Profiles are the requested profiles; a profile is named by its position.
	Profiles []gpu.Profile
	// Placements are the legal placements of these, profile by profile by ascending start; a placement
	// is named by its position, and Profile is the position of its profile.
	Placements []gpu.Placement
	Profile    []int
	// Held are the placements of a GPU in the state.
	Held []gpu.Occupancy
	// Taken and Released are, by state and placement, the state with the placement added or removed;
	// None where it does not fit or is not held.
	Taken, Released [][]int
	// Open is, by state and profile, the number of placements that fit.
	Open [][]int
}

// NewStates enumerates the states that placements of the profiles lead to.
func NewStates(g *gpu.Geometry, profiles []gpu.Profile) (*States, error) {
	s := &States{Geometry: g, Profiles: profiles}
	for i, p := range profiles {
		for _, placement := range g.Placements(p.ID) {
			s.Placements, s.Profile = append(s.Placements, placement), append(s.Profile, i)
		}
	}
	known := map[gpu.Occupancy]int{}
	s.state(g.Empty(), known)
	for state := 0; state < len(s.Held); state++ {
		for placement, p := range s.Placements {
			taken, err := s.Held[state].Take(gpu.Use{Shape: gpu.MIG, Placement: p})
			if err != nil {
				continue
			}
			next := s.state(taken, known)
			s.Taken[state][placement] = next
			s.Released[next][placement] = state
			s.Open[state][s.Profile[placement]]++
		}
	}
	return s, nil
}

// state returns the number of the state, a new one for a new state.
func (s *States) state(o gpu.Occupancy, known map[gpu.Occupancy]int) int {
	if number, ok := known[o]; ok {
		return number
	}
	nowhere := make([]int, 2*len(s.Placements))
	for i := range nowhere {
		nowhere[i] = None
	}
	known[o] = len(s.Held)
	s.Held = append(s.Held, o)
	s.Taken = append(s.Taken, nowhere[:len(s.Placements):len(s.Placements)])
	s.Released = append(s.Released, nowhere[len(s.Placements):])
	s.Open = append(s.Open, make([]int, len(s.Profiles)))
	return known[o]
}

// Plain returns the profiles without variants, such as those with media extensions, which no mix requests.
func Plain(g *gpu.Geometry) []gpu.Profile {
	return slices.DeleteFunc(g.Profiles(), func(p gpu.Profile) bool { return strings.ContainsAny(p.Name, "+-") })
}
