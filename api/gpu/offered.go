package gpu

import "fmt"

// OfferedGeometry returns what is known of a GPU from outside of its node: the profiles that it is
// offered in, and what a whole one costs. They may be
// fewer than the hardware has, so that slices and engines come from total, whose kinds of engines are
// those that bind. The cost of every use is then the same as on the node. A GPU of one slice without
// profiles has no geometry.
func OfferedGeometry(profiles []Profile, total Cost) (*Geometry, error) {
	if len(profiles) == 0 && total.Slices.Count() <= 1 {
		return nil, nil
	}
	g, err := NewGeometry(profiles)
	if err != nil {
		return nil, err
	}
	count := total.Slices.Count()
	switch {
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

// most returns how many instances of the profile an otherwise empty GPU holds. Spans of one length are
// packed best from the first slice on.
func (g *Geometry) most(id int) int {
	o := g.Empty()
	for _, p := range g.Placements(id) {
		if next, err := o.Take(Use{Shape: MIG, Placement: p}); err == nil {
			o = next
		}
	}
	return o.Holders()
}
