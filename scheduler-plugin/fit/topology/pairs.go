package topology

// Nodes with more than MaxTabled GPUs have no Tables. Their sets are evaluated by pairs of GPUs instead of rings,
// which is an approximation.

// pairQuality returns the bandwidth of the weakest pair in the set, relative to the strongest pair of the node.
func (w *Wiring) pairQuality(gpus []int) int {
	if w == nil || len(gpus) < 2 {
		return PerfectQuality
	}
	var strongest strength
	for _, row := range w.links {
		for _, s := range row {
			strongest = max(strongest, s)
		}
	}
	return int(PerfectQuality * w.weakestPair(gpus).bandwidth() / max(1, strongest.bandwidth()))
}

// weakestPair returns the strength of the weakest link between two GPUs of the set.
func (w *Wiring) weakestPair(gpus []int) strength {
	weakest := strength(1<<31 - 1)
	for i, a := range gpus {
		for _, b := range gpus[i+1:] {
			weakest = min(weakest, w.links[a][b])
		}
	}
	return weakest
}

// ChooseByPairs returns k of the GPUs in from, of which there must be at least k. It is the heuristic for nodes
// without Tables: from each GPU a set grows by the GPU whose weakest link to the set is the strongest, and the best
// of these sets is returned.
func (w *Wiring) ChooseByPairs(from []int, k int) []int {
	if w == nil || k < 2 {
		return from[:k]
	}
	var best []int
	for _, seed := range from {
		set := []int{seed}
		for len(set) < k {
			set = append(set, w.nearestGPU(from, set))
		}
		if best == nil || w.weakestPair(set) > w.weakestPair(best) {
			best = set
		}
	}
	return best
}

// nearestGPU returns the GPU in from, outside the set, whose weakest link to the set is the strongest.
func (w *Wiring) nearestGPU(from, set []int) int {
	best, strongest := -1, strength(-1)
	in := make([]bool, w.gpus)
	for _, g := range set {
		in[g] = true
	}
	for _, g := range from {
		if in[g] {
			continue
		}
		weakest := strength(1<<31 - 1)
		for _, member := range set {
			weakest = min(weakest, w.links[g][member])
		}
		if weakest > strongest {
			best, strongest = g, weakest
		}
	}
	return best
}
