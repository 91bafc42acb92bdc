package fit

import (
	"cmp"
	"slices"
)

// greedy serves a demand of many different requests in steps: first the sets of whole GPUs, then device by
// device what has the fewest free candidates, each by the best offer that what was given before leaves.
type greedy struct {
	*search
	// left is the node as the devices given so far leave it.
	left  Node
	spent spent
	given []deal
}

// serve returns the devices for all classes, and false when the steps come to an end before.
func (c *search) serve() ([]deal, bool) {
	g := greedy{search: c, left: *c.node}
	g.left.GPUs = slices.Clone(c.node.GPUs)
	if !g.teams() {
		return nil, false
	}
	need := make([]int, len(c.classes))
	for i := range c.classes {
		need[i] = c.classes[i].need()
	}
	for _, d := range g.given {
		need[d.class]--
	}
	for {
		s := look(&g.left, nil)
		class, best := g.scarcest(&s, need)
		switch {
		case class < 0:
			return g.given, true
		case best == nil || !g.take(class, best.device):
			return nil, false
		}
		need[class]--
	}
}

// teams gives every team its best set beside those of the teams before.
func (g *greedy) teams() bool {
	p := planner{search: g.search}
	for i := range g.classes {
		if !g.classes[i].alternative.whole(g.node.Devices) {
			continue
		}
		sets := p.candidates(i, g.spent)
		if len(sets) == 0 {
			return false
		}
		for at, device := range sets[0].devices {
			p.taken = append(p.taken, sets[0].gpus[at])
			if !g.take(i, device) {
				return false
			}
		}
	}
	return true
}

// take gives the device to the class.
func (g *greedy) take(class, device int) bool {
	at := g.node.Devices[device].GPU
	next, err := g.left.GPUs[at].Occupancy.Take(g.classes[class].alternative.use(g.node, device))
	if err != nil {
		return false
	}
	after, ok := g.spend(g.spent, class, device)
	if !ok {
		return false
	}
	g.left.GPUs[at].Occupancy, g.spent = next, after
	g.given = append(g.given, deal{class, device})
	return true
}

// scarcest returns, of the classes that still need devices, the one with the fewest free candidates for
// each of them, and its best offer; no class when all are served, no offer when there is none.
func (g *greedy) scarcest(s *sight, need []int) (class int, best *offer) {
	class = -1
	fewest := 0
	for i := range g.classes {
		if need[i] == 0 {
			continue
		}
		offer, free := g.bestOf(s, i)
		if class < 0 || cmp.Or(cmp.Compare(free*need[class], fewest*need[i]), cmp.Compare(i, class)) < 0 {
			class, best, fewest = i, offer, free
		}
	}
	return class, best
}

// bestOf returns the best offer for one more device of the class, and how many there are.
func (g *greedy) bestOf(s *sight, class int) (best *offer, free int) {
	a := g.classes[class].alternative
	for device := range a.Candidates.all {
		if !g.allowed(class, device) || g.used(class, device) {
			continue
		}
		o, ok := s.offer(device, a.share(device))
		if !ok {
			continue
		}
		if _, ok := g.spend(g.spent, class, device); !ok {
			continue
		}
		free++
		if best == nil || o.compare(best) < 0 {
			best = &o
		}
	}
	return best, free
}

// used reports whether the class cannot have the device again: a share of the same GPU goes to another
// request only.
func (g *greedy) used(class, device int) bool {
	shared := g.node.Devices[device].Use.Shape.Shared()
	return slices.ContainsFunc(g.given, func(d deal) bool {
		return d.device == device && (!shared || d.class == class && g.classes[class].each > 1)
	})
}
