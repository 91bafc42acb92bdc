package fit

import (
	"cmp"
	"slices"
)

// greedy serves requirements device by device: first the teams, then always the group that has the fewest free candidates per
// device that it still needs, which gets its best offer on the node as the devices given before leave it.
//
// It can fail although a solution exists: an early device may block the only one of a later group. Then everything is
// searched (planFixedValues).
//
// Example: group A can use 2 free devices and needs 2, group B can use 10 and needs 1. A is served first, since its
// ratio is 1 and that of B 10.
type greedy struct {
	*search
	// left is the node after the devices given so far are taken.
	left     Node
	distinct distinctValues
	given    []assignedDevice
}

// serveGreedily returns the devices for all groups, and false if a group gets no device.
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
		group, best := g.scarcestGroup(&s, need)
		switch {
		case group < 0:
			return g.given, true
		case best == nil || !g.takeDevice(group, best.device):
			return nil, false
		}
		need[group]--
	}
}

// serveTeams gives every team its best set of the GPUs that earlier teams left.
func (g *greedy) serveTeams() bool {
	for i := range g.groups {
		if !g.groups[i].alternative.isTeam(g.node.Devices) {
			continue
		}
		set, ok := g.bestTeamSet(i)
		if !ok {
			return false
		}
		for _, device := range set.devices {
			if !g.takeDevice(i, device) {
				return false
			}
		}
	}
	return true
}

// takeDevice gives the device to the group.
func (g *greedy) takeDevice(group, device int) bool {
	at := g.node.Devices[device].GPU
	next, err := g.left.GPUs[at].Occupancy.Take(g.groups[group].alternative.useOf(g.node, device))
	if err != nil {
		return false
	}
	after, ok := g.addDistinct(g.distinct, group, device)
	if !ok {
		return false
	}
	g.left.GPUs[at].Occupancy, g.distinct = next, after
	g.given = append(g.given, assignedDevice{group, device})
	return true
}

// scarcestGroup returns, of the groups that still need devices, the one with the fewest free candidates per needed
// device, and its best offer. It returns -1 if all groups are served, and no offer if the group has no free candidate.
func (g *greedy) scarcestGroup(s *nodeView, need []int) (group int, best *offer) {
	group = -1
	fewest := 0
	for i := range g.groups {
		if need[i] == 0 {
			continue
		}
		if !g.budget.Spend(len(g.node.Devices)/8 + 1) {
			return i, nil
		}
		offer, free := g.bestOffer(s, i)
		// free/need < fewest/need of the other group, without division.
		if group < 0 || cmp.Or(cmp.Compare(free*need[group], fewest*need[i]), cmp.Compare(i, group)) < 0 {
			group, best, fewest = i, offer, free
		}
	}
	return group, best
}

// bestOffer returns the best offer for one more device of the group, and the number of offers.
func (g *greedy) bestOffer(s *nodeView, group int) (best *offer, free int) {
	a := g.groups[group].alternative
	for device := range a.Candidates.all {
		if !g.allowsDevice(group, device) || g.isUsed(group, device) {
			continue
		}
		o, ok := s.offerOf(device, a.shareOf(device))
		if !ok {
			continue
		}
		if _, ok := g.addDistinct(g.distinct, group, device); !ok {
			continue
		}
		free++
		if best == nil || o.compare(best) < 0 {
			best = &o
		}
	}
	return best, free
}

// isUsed reports whether the group cannot take the device any more. Only different requests can take shares of the same
// device.
func (g *greedy) isUsed(group, device int) bool {
	shared := g.node.Devices[device].Use.Shape.Shared()
	return slices.ContainsFunc(g.given, func(d assignedDevice) bool {
		return d.device == device && (!shared || d.group == group && g.groups[group].perRequest > 1)
	})
}
