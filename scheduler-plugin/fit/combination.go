package fit

import "slices"

// partialPlan is the cheapest way in which the GPUs up to some position reach a progress.
type partialPlan struct {
	progress
	cost gpuCost
	// from is the position of the plan that it extends, in the layer of the previous GPU; assignment is what its own
	// GPU gives.
	from       int
	assignment *assignment
}

// combineAssignments returns one assignment for each GPU such that together they serve all groups at the least cost;
// nil if that is impossible or exceeds the budget.
//
// It is a dynamic program over the GPUs in order. layers[g] holds the cheapest partial plan of the GPUs before g for
// every progress that they can reach. Costs of different GPUs add up, and what the remaining GPUs can do depends only
// on the progress, so the cheapest plan for a progress is part of an optimal solution if any plan with that progress
// is. The number of plans in a layer is bounded by the number of progresses and not by the number of GPUs or devices.
//
// Example: one group that needs 2 devices, three GPUs that can each give 0, 1 or 2. layers[0] = {0}, layers[1] = {0, 1,
// 2}, layers[2] = {0, 1, 2}, layers[3] = {2}: a plan that cannot reach 2 with the remaining GPUs is dropped. The result
// is read backwards from the cheapest plan of layers[3].
func (c *search) combineAssignments(assignments [][]assignment) []*assignment {
	remaining := c.maxRemaining(assignments)
	layers := [][]partialPlan{{{progress: progress{served: c.noneServed()}}}}
	for g := range assignments {
		layers = append(layers, c.nextLayer(layers[g], assignments[g], g, remaining[g+1]))
	}
	last := layers[len(assignments)]
	best := -1
	for i := range last {
		if c.servesAll(last[i].served) && (best < 0 || last[i].cost.compare(last[best].cost) < 0) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	chosen := make([]*assignment, len(assignments))
	for g := len(assignments); g > 0; g-- {
		chosen[g-1] = layers[g][best].assignment
		best = layers[g][best].from
	}
	return chosen
}

// maxRemaining returns, for each GPU and group, an upper bound of the devices that the GPU and all later ones can give.
func (c *search) maxRemaining(assignments [][]assignment) [][]int {
	remaining := make([][]int, len(assignments)+1)
	remaining[len(assignments)] = make([]int, len(c.groups))
	for g := len(assignments) - 1; g >= 0; g-- {
		remaining[g] = slices.Clone(remaining[g+1])
		for i := range c.groups {
			own := 0
			for _, a := range assignments[g] {
				own = max(own, int(a.served[i]))
			}
			remaining[g][i] += own
		}
	}
	return remaining
}

// nextLayer extends every plan by every assignment of the next GPU, and keeps the cheapest plan for each progress.
// remaining is what the GPUs after it can give at most.
func (c *search) nextLayer(before []partialPlan, assignments []assignment, position int, remaining []int) []partialPlan {
	var after []partialPlan
	at := map[progress]int{}
	for from := range before {
		for i := range assignments {
			if !c.budget.Spend(c.stepSize()) {
				return nil
			}
			next, ok := c.addAssignment(before[from], &assignments[i], remaining)
			if !ok {
				continue
			}
			next.from = from
			if next.assignment.cost.opened > 0 {
				next.cost.residual += c.gpus[position].residual
			}
			// Values that no later GPU can use no longer distinguish plans.
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

// addAssignment extends a plan by the assignment of a GPU. It returns false if a group gets more than it needs or can
// no longer get enough, or if a value of a distinctAttribute is used twice.
func (c *search) addAssignment(before partialPlan, a *assignment, remaining []int) (partialPlan, bool) {
	counts := []byte(before.served)
	for i := range counts {
		sum := int(counts[i]) + int(a.served[i])
		if need := c.groups[i].needed(); sum > need || sum+remaining[i] < need {
			return before, false
		}
		counts[i] = byte(sum)
	}
	distinct, ok := before.distinct.union(a.distinct)
	if !ok {
		return before, false
	}
	return partialPlan{progress: progress{servedCounts(counts), distinct}, cost: before.cost.plus(a.cost), assignment: a}, true
}

// servesAll reports whether all groups have the devices that they need.
func (c *search) servesAll(s servedCounts) bool {
	for i := range c.groups {
		if int(s[i]) < c.groups[i].needed() {
			return false
		}
	}
	return true
}
