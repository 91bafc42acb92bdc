package gpu

import "fmt"

// OfferedGeometry returns the geometry of a GPU as it can be derived from published devices: from the profiles that are offered
// and the cost of the whole GPU. The cost of every use then equals the cost on the node.
//
// The offered profiles can be fewer than those of the hardware. The number of memory slices, the binding kinds and their
// capacity are therefore taken from total, and MaxInstances is computed. A GPU of one memory slice without profiles has no
// geometry (nil). An error names the contradiction between profiles and total.
func OfferedGeometry(profiles []Profile, total Cost) (*Geometry, error) {
	if len(profiles) == 0 && total.Slices.Count() <= 1 {
		return nil, nil
	}
	g, err := newGeometry(profiles)
	if err != nil {
		return nil, err
	}
	count := total.Slices.Count()
	switch {
	case total.Engines.exceed(MaxEngines):
		return nil, fmt.Errorf("engines %+v, at most %d of a kind: %w", total.Engines, MaxEngines, ErrTooLarge)
	case total.Slices != SpanMask(0, count):
		return nil, fmt.Errorf("memory slices %v: must be the first ones without a gap", total.Slices)
	case g.slices > count:
		return nil, fmt.Errorf("placements reach %d memory slices, the GPU has %d", g.slices, count)
	}
	g.slices = count
	g.capacity = g.capacity.atLeast(total.Engines)
	var binding []Engine
	for kind := range Engine(engineKinds) {
		if total.Engines.Count(kind) > 0 {
			binding = append(binding, kind)
		}
	}
	g.bind(binding)
	for i := range g.profiles {
		g.profiles[i].MaxInstances = g.most(g.profiles[i].ID)
	}
	return g, nil
}

// most returns how many instances of the profile an empty GPU holds. Taking each legal placement that fits, in ascending order
// of start, is optimal for spans of equal length.
func (g *Geometry) most(id int) int {
	o := g.Empty()
	for _, p := range g.Placements(id) {
		if next, err := o.Take(Use{Shape: MIG, Placement: p}); err == nil {
			o = next
		}
	}
	return o.Holders()
}
