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
	left     Node
	distinct distinctValues
	given    []assignedDevice
}

// serveGreedily returns the devices for all classes, and false when the steps come to an end before.
func (c *search) serveGreedily() ([]assignedDevice, bool) {
	g := greedy{search: c, left: *c.node}
	g.left.GPUs = slices.Clone(c.node.GPUs)
	if !g.serveTeams() {
		return nil, false
	}
	need := make([]int, len(c.groups))
	for i := range c.groups {
		need[i] = c.groups[i].needed()
	}
	for _, d := range g.given {
		need[d.group]--
	}
	for {
		s := newNodeView(&g.left, nil)
		class, best := g.scarcestGroup(&s, need)
		switch {
		case class < 0:
			return g.given, true
		case best == nil || !g.takeDevice(class, best.device):
			return nil, false
		}
		need[class]--
	}
}

// serveTeams gives every team its best set beside those of the teams before.
func (g *greedy) serveTeams() bool {
	p := planner{search: g.search}
	for i := range g.groups {
		if !g.groups[i].alternative.isTeam(g.node.Devices) {
			continue
		}
		sets := p.bestTeamSets(i, g.distinct)
		if len(sets) == 0 {
			return false
		}
		for at, device := range sets[0].devices {
			p.taken = append(p.taken, sets[0].gpus[at])
			if !g.takeDevice(i, device) {
				return false
			}
		}
	}
	return true
}

// takeDevice gives the device to the class.
func (g *greedy) takeDevice(class, device int) bool {
	at := g.node.Devices[device].GPU
	next, err := g.left.GPUs[at].Occupancy.Take(g.groups[class].alternative.useOf(g.node, device))
	if err != nil {
		return false
	}
	after, ok := g.addDistinct(g.distinct, class, device)
	if !ok {
		return false
	}
	g.left.GPUs[at].Occupancy, g.distinct = next, after
	g.given = append(g.given, assignedDevice{class, device})
	return true
}

// scarcestGroup returns, of the classes that still need devices, the one with the fewest free candidates for
// each of them, and its best offer; no class when all are served, no offer when there is none.
func (g *greedy) scarcestGroup(s *nodeView, need []int) (class int, best *offer) {
	class = -1
	fewest := 0
	for i := range g.groups {
		if need[i] == 0 {
			continue
		}
		offer, free := g.bestOffer(s, i)
		if class < 0 || cmp.Or(cmp.Compare(free*need[class], fewest*need[i]), cmp.Compare(i, class)) < 0 {
			class, best, fewest = i, offer, free
		}
	}
	return class, best
}

// bestOffer returns the best offer for one more device of the class, and how many there are.
func (g *greedy) bestOffer(s *nodeView, class int) (best *offer, free int) {
	a := g.groups[class].alternative
	for device := range a.Candidates.all {
		if !g.allowsDevice(class, device) || g.isUsed(class, device) {
			continue
		}
		o, ok := s.offerOf(device, a.shareOf(device))
		if !ok {
			continue
		}
		if _, ok := g.addDistinct(g.distinct, class, device); !ok {
			continue
		}
		free++
		if best == nil || o.compare(best) < 0 {
			best = &o
		}
	}
	return best, free
}

// isUsed reports whether the class cannot have the device again: a share of the same GPU goes to another
// request only.
func (g *greedy) isUsed(class, device int) bool {
	shared := g.node.Devices[device].Use.Shape.Shared()
	return slices.ContainsFunc(g.given, func(d assignedDevice) bool {
		return d.device == device && (!shared || d.group == class && g.groups[class].perRequest > 1)
	})
}
