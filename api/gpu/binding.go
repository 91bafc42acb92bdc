package gpu

import "fmt"

// bindingEngines returns the engine kinds that can reject a placement although its memory slices are free.
//
// Kinds are examined in the order of the Engine constants. A kind binds if some packing of non-overlapping placements needs
// more engines of it than the GPU has, where only packings count that stay within the capacity of the kinds found before. The
// result is therefore sufficient (checking its kinds is equal to checking all kinds), but not always minimal: a later kind can
// make an earlier one redundant.
//
// Example: an H100 has one OFA engine, and every 1g.10gb+me takes one. Two of them fit by memory slices but not by engines, so
// OFA binds. Decoders do not bind: no packing needs more of them than the GPU has.
//
// An error wraps ErrTooLarge: there are more than maxPackings states of a packing.
func bindingEngines(g *Geometry) ([]Engine, error) {
	var binding []Engine
	for kind := range Engine(engineKinds) {
		s := search{geometry: g, binding: binding, kind: kind, known: map[packed]int{}}
		most := s.most(packed{})
		if len(s.known) > maxPackings {
			return nil, fmt.Errorf("packings of %d profiles with different %v: more than %d: %w", len(g.profiles), binding, maxPackings, ErrTooLarge)
		}
		if most > g.capacity.Count(kind) {
			binding = append(binding, kind)
		}
	}
	return binding, nil
}

// maxPackings limits the states of a search. The RTX PRO 6000 has 57 and all other known GPUs fewer; profiles that do not come
// from NVML can have a number that is exponential in the number of profiles.
const maxPackings = 1 << 12

// search finds the largest number of engines of one kind that any packing uses. Packings that exceed the capacity of a kind in
// binding are ignored. known caches the results of most.
type search struct {
	geometry *Geometry
	binding  []Engine
	kind     Engine
	known    map[packed]int
}

// packed is the state of a packing that is built from memory slice 0 upwards: slices is the first memory slice that is not
// decided yet. It has only what limits the remaining placements, so that packings with equal states share one result.
type packed struct {
	slices int
	// used counts the engines taken so far, of the binding kinds only.
	used Engines
}

// most returns the largest number of engines of the kind that placements from memory slice p.slices on can use.
//
// There are two choices for each memory slice: leave it free, or start one of the legal placements there. Results are cached by
// state, which bounds the work by the number of states instead of the number of packings; the latter grows exponentially with
// the number of memory slices. The search ends early, with a meaningless result, when known has more than maxPackings.
func (s *search) most(p packed) int {
	if p.slices >= s.geometry.slices || len(s.known) > maxPackings {
		return 0
	}
	if n, ok := s.known[p]; ok {
		return n
	}
	n := s.most(packed{slices: p.slices + 1, used: p.used})
	for _, placement := range s.geometry.placements {
		if placement.Start != p.slices {
			continue
		}
		profile := s.geometry.profiles[s.geometry.index(placement.Profile)]
		next := packed{slices: p.slices + placement.Size, used: p.used.plus(profile.Engines.only(s.binding))}
		if _, lacks := s.geometry.capacity.lacking(next.used, s.binding); !lacks {
			n = max(n, profile.Engines.Count(s.kind)+s.most(next))
		}
	}
	s.known[p] = n
	return n
}
