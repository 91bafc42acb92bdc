package fit

import "slices"

// partialPlan is a part of the demand that the GPUs up to some position serve together.
type partialPlan struct {
	progress
	cost gpuCost
	// from is the position of the part before, among those of the GPU before, way what its GPU adds.
	from       int
	assignment *assignment
}

// combineAssignments serves all classes by the GPUs, and returns the way of each; nil when they cannot.
func (c *search) combineAssignments(ways [][]assignment, start partialPlan) []*assignment {
	most := c.maxRemaining(ways)
	layers := [][]partialPlan{{start}}
	for g := range ways {
		layers = append(layers, c.nextLayer(layers[g], ways[g], g, most[g+1]))
	}
	last := layers[len(ways)]
	best := -1
	for i := range last {
		if c.servesAll(last[i].served) && (best < 0 || last[i].cost.compare(last[best].cost) < 0) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	chosen := make([]*assignment, len(ways))
	for g := len(ways); g > 0; g-- {
		chosen[g-1] = layers[g][best].assignment
		best = layers[g][best].from
	}
	return chosen
}

// maxRemaining returns, by GPU, how many devices of each class it and those after it can give at most.
func (c *search) maxRemaining(ways [][]assignment) [][]int {
	most := make([][]int, len(ways)+1)
	most[len(ways)] = make([]int, len(c.groups))
	for g := len(ways) - 1; g >= 0; g-- {
		most[g] = slices.Clone(most[g+1])
		for i := range c.groups {
			own := 0
			for _, w := range ways[g] {
				own = max(own, int(w.served[i]))
			}
			most[g][i] += own
		}
	}
	return most
}

// nextLayer joins every part with every way of the next GPU: of those that serve the same it keeps the one
// that costs least. most is what the GPUs after it can still give.
func (c *search) nextLayer(before []partialPlan, ways []assignment, position int, most []int) []partialPlan {
	var after []partialPlan
	at := map[progress]int{}
	for from := range before {
		for w := range ways {
			next, ok := c.addAssignment(before[from], &ways[w], most)
			if !ok {
				continue
			}
			next.from = from
			if next.assignment.cost.opened > 0 {
				next.cost.residual += c.gpus[position].residual
			}
			next.distinct = c.distinct.usableAfter(next.distinct, position)
			known, ok := at[next.progress]
			switch {
			case !ok:
				at[next.progress] = len(after)
				after = append(after, next)
			case next.cost.compare(after[known].cost) < 0:
				after[known] = next
			}
		}
	}
	return after
}

// addAssignment adds the way of a GPU, and returns false when that serves too much, spends a value twice, or
// leaves more to be served than the GPUs after it can.
func (c *search) addAssignment(before partialPlan, w *assignment, most []int) (partialPlan, bool) {
	counts := []byte(before.served)
	for i := range counts {
		sum := int(counts[i]) + int(w.served[i])
		if need := c.groups[i].needed(); sum > need || sum+most[i] < need {
			return before, false
		}
		counts[i] = byte(sum)
	}
	spent, ok := before.distinct.union(w.distinct)
	if !ok {
		return before, false
	}
	return partialPlan{progress: progress{servedCounts(counts), spent}, cost: before.cost.plus(w.cost), assignment: w}, true
}

// servesAll reports whether all classes have what they need.
func (c *search) servesAll(s servedCounts) bool {
	for i := range c.groups {
		if int(s[i]) < c.groups[i].needed() {
			return false
		}
	}
	return true
}
