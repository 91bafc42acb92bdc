package fit

import "slices"

// planFixedValues serves the requirements with the fixed values of matchAttributes, and keeps the result if it is the best
// so far. Only if they cannot be served greedily, and no other values gave a result, everything is searched.
func (c *search) planFixedValues() {
	if all, ok := c.serveGreedily(); ok {
		c.keepIfBest(all)
		return
	}
	if c.best == nil {
		c.searchFixedValues()
	}
}

// searchFixedValues finds devices for the fixed values of matchAttributes if there are any, and keeps them if they are the
// best so far. Several whole GPUs are assigned like other devices, whatever their links.
func (c *search) searchFixedValues() {
	items := c.itemsByGPU()
	assignments := c.assignmentsByGPU(items)
	if c.budget.Exceeded() {
		return
	}
	chosen := c.combineAssignments(assignments)
	if chosen == nil {
		return
	}
	var all []assignedDevice
	for g, a := range chosen {
		for _, given := range a.items {
			all = append(all, assignedDevice{given.group, items[g][given.item].device})
		}
	}
	c.keepIfBest(all)
}

// keepIfBest makes a result of the devices and keeps it if its score is the highest so far.
func (c *search) keepIfBest(all []assignedDevice) {
	found := &plannedChoice{picks: c.picksOf(all)}
	found.outcome = c.outcomeOfPicks(c.requirements, found.picks)
	found.score = c.score(found.outcome)
	if c.best == nil || found.score > c.best.score {
		c.best = found
	}
}

// assignedDevice is a device that a group gets.
type assignedDevice struct{ group, device int }

// picksOf distributes the devices of each group to its requests, in ascending order.
func (c *search) picksOf(all []assignedDevice) []Pick {
	picks := make([]Pick, len(c.alternatives))
	for i, group := range c.groups {
		var devices []int
		for _, g := range all {
			if g.group == i {
				devices = append(devices, g.device)
			}
		}
		slices.Sort(devices)
		for m, request := range group.members {
			picks[request] = Pick{Alternative: c.alternatives[request], Devices: devices[m*group.perRequest : (m+1)*group.perRequest]}
		}
	}
	return picks
}
