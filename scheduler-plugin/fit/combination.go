package fit

import "slices"

// joined is a part of the demand that the GPUs up to some position serve together.
type joined struct {
	part
	cost cost
	// from is the position of the part before, among those of the GPU before, way what its GPU adds.
	from int
	way  *way
}

// join serves all classes by the GPUs, and returns the way of each; nil when they cannot.
func (c *search) join(ways [][]way, start joined) []*way {
	most := c.most(ways)
	layers := [][]joined{{start}}
	for g := range ways {
		layers = append(layers, c.layer(layers[g], ways[g], g, most[g+1]))
	}
	last := layers[len(ways)]
	best := -1
	for i := range last {
		if c.complete(last[i].served) && (best < 0 || last[i].cost.compare(last[best].cost) < 0) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	chosen := make([]*way, len(ways))
	for g := len(ways); g > 0; g-- {
		chosen[g-1] = layers[g][best].way
		best = layers[g][best].from
	}
	return chosen
}

// most returns, by GPU, how many devices of each class it and those after it can give at most.
func (c *search) most(ways [][]way) [][]int {
	most := make([][]int, len(ways)+1)
	most[len(ways)] = make([]int, len(c.classes))
	for g := len(ways) - 1; g >= 0; g-- {
		most[g] = slices.Clone(most[g+1])
		for i := range c.classes {
			own := 0
			for _, w := range ways[g] {
				own = max(own, int(w.served[i]))
			}
			most[g][i] += own
		}
	}
	return most
}

// layer joins every part with every way of the next GPU: of those that serve the same it keeps the one
// that costs least. most is what the GPUs after it can still give.
func (c *search) layer(before []joined, ways []way, position int, most []int) []joined {
	var after []joined
	at := map[part]int{}
	for from := range before {
		for w := range ways {
			next, ok := c.step(before[from], &ways[w], most)
			if !ok {
				continue
			}
			next.from = from
			if next.way.cost.opened > 0 {
				next.cost.residual += c.gpus[position].residual
			}
			next.spent = c.distinct.after(next.spent, position)
			known, ok := at[next.part]
			switch {
			case !ok:
				at[next.part] = len(after)
				after = append(after, next)
			case next.cost.compare(after[known].cost) < 0:
				after[known] = next
			}
		}
	}
	return after
}

// step adds the way of a GPU, and returns false when that serves too much, spends a value twice, or
// leaves more to be served than the GPUs after it can.
func (c *search) step(before joined, w *way, most []int) (joined, bool) {
	counts := []byte(before.served)
	for i := range counts {
		sum := int(counts[i]) + int(w.served[i])
		if need := c.classes[i].need(); sum > need || sum+most[i] < need {
			return before, false
		}
		counts[i] = byte(sum)
	}
	spent, ok := before.spent.join(w.spent)
	if !ok {
		return before, false
	}
	return joined{part: part{served(counts), spent}, cost: before.cost.plus(w.cost), way: w}, true
}

// complete reports whether all classes have what they need.
func (c *search) complete(s served) bool {
	for i := range c.classes {
		if int(s[i]) < c.classes[i].need() {
			return false
		}
	}
	return true
}
