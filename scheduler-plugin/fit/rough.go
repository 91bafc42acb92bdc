package fit

// A node of more GPUs than the tables cover is judged pair by pair.

// roughQuality returns the bandwidth of the weakest pair over that of the strongest pair of the node.
func (w *Wiring) roughQuality(gpus []int) int {
	if w == nil || len(gpus) < 2 {
		return perfect
	}
	var strongest strength
	for _, row := range w.links {
		for _, s := range row {
			strongest = max(strongest, s)
		}
	}
	return int(perfect * w.weakestPair(gpus).bandwidth() / max(1, strongest.bandwidth()))
}

func (w *Wiring) weakestPair(gpus []int) strength {
	weakest := strength(1<<31 - 1)
	for i, a := range gpus {
		for _, b := range gpus[i+1:] {
			weakest = min(weakest, w.links[a][b])
		}
	}
	return weakest
}

// roughChoose returns k of the GPUs, of which there are at least as many: from each of them a set grows
// by the GPU whose weakest link to the set is the strongest, and the best of these sets is taken.
func (w *Wiring) roughChoose(from []int, k int) []int {
	if w == nil || k < 2 {
		return from[:k]
	}
	var best []int
	for _, seed := range from {
		set := []int{seed}
		for len(set) < k {
			set = append(set, w.nearest(from, set))
		}
		if best == nil || w.weakestPair(set) > w.weakestPair(best) {
			best = set
		}
	}
	return best
}

// nearest returns the GPU outside the set whose weakest link to the set is the strongest.
func (w *Wiring) nearest(from, set []int) int {
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
