package gpu

// Granule returns the largest number of memory slices in which every legal placement can be counted, start and size; the GPU's
// number of memory slices without profiles. Example: placements at 0, 4 and 8 of 4 memory slices have the granule 4.
func (g *Geometry) Granule() int {
	unit := max(1, g.Slices())
	for _, p := range g.Profiles() {
		unit = greatestCommonDivisor(unit, p.Size)
		for _, start := range p.Starts {
			unit = greatestCommonDivisor(unit, start)
		}
	}
	return unit
}

// States returns how many states of a GPU a table can have: the sets of taken granules times the numbers of taken engines of the
// binding kinds. It grows exponentially with the number of binding kinds, so that tables need a bound. An H100 has 512 states.
func (g *Geometry) States() uint64 {
	states := uint64(1) << (max(1, g.Slices()) / g.Granule())
	for _, kind := range g.kinds() {
		states *= uint64(min(g.capacity.Count(kind), MaxEngines)) + 1
	}
	return states
}

// greatestCommonDivisor returns the greatest common divisor.
func greatestCommonDivisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
