package gpu

// bindingEngines returns the kinds that can refuse a placement although its slices are free. A kind
// is left out when the kinds before it already keep every packing within its capacity.
func bindingEngines(g *Geometry) []Engine {
	var binding []Engine
	for kind := range Engine(engineKinds) {
		s := search{geometry: g, binding: binding, kind: kind, known: map[packed]int{}}
		if s.most(packed{}) > g.capacity.Count(kind) {
			binding = append(binding, kind)
		}
	}
	return binding
}

// search finds the most engines of one kind that any packing of the GPU uses while the kinds that
// bind already stay within their capacity.
type search struct {
	geometry *Geometry
	binding  []Engine
	kind     Engine
	known    map[packed]int
}

// packed is a packing of the slices below one, as far as it limits the rest.
type packed struct {
	slices int
	// used are the engines of the kinds that bind already.
	used Engines
}

// most returns the most engines of the kind that the slices above p can use.
func (s *search) most(p packed) int {
	if p.slices >= s.geometry.slices {
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
