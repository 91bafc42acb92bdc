package fit

import "slices"

// maxTeamSets is how many ways to choose the sets of whole GPUs are tried for a demand that asks for more.
const maxTeamSets = 32

// maxProgress is how many parts a demand may have to be planned at its best.
const maxProgress = 32

// planFixedValues finds the devices for the values that are fixed, and keeps them if they are the best so far.
//
// Requests for several whole GPUs get the best sets that leave enough to the others. When none of the
// first mostSets does, any way to serve them counts. A demand of many parts is served in steps (greedy),
// and only when they do not get to the end, and nothing was found with other values, all is tried.
func (c *search) planFixedValues() {
	p := planner{search: c, tries: maxTeamSets}
	if c.countProgress() > c.limit {
		if all, ok := c.serveGreedily(); ok {
			c.keepIfBest(all)
			return
		}
		if c.best != nil {
			return
		}
		p.tries = 1
	}
	p.items = c.itemsByGPU()
	p.assignments = c.assignmentsByGPU(p.items)
	if p.chooseTeams(0, partialPlan{progress: progress{served: c.noneServed()}}); !p.found {
		p.planRest(partialPlan{progress: progress{served: c.noneServed()}})
	}
}

// countProgress returns how many different parts of the demand can be served, or a number beyond the limit.
func (c *search) countProgress() int {
	parts := 1
	for i := range c.groups {
		parts *= c.groups[i].needed() + 1
		if parts > c.limit {
			break
		}
	}
	return parts
}

// keepIfBest makes a plan of the devices, if it is the best so far.
func (c *search) keepIfBest(all []assignedDevice) {
	found := &plannedChoice{picks: c.picksOf(all)}
	found.outcome = c.outcomeOfPicks(c.requirements, found.picks)
	found.score = c.score(found.outcome)
	if c.best == nil || found.score > c.best.score {
		c.best = found
	}
}

// assignedDevice is a device that a class gets.
type assignedDevice struct{ group, device int }

// planner tries sets for the teams among the classes, one team after the other.
type planner struct {
	*search
	// items and ways are by GPU.
	items       [][]item
	assignments [][]assignment
	// taken are the GPUs of the sets chosen so far, given their devices.
	taken []int
	given []assignedDevice
	// tries is how many more sets may be tried; found says that one left enough.
	tries int
	found bool
}

// chooseTeams chooses a set for the first team from the class on, and then for those after it.
func (p *planner) chooseTeams(from int, start partialPlan) {
	next := from
	for next < len(p.groups) && !p.groups[next].alternative.isTeam(p.node.Devices) {
		next++
	}
	if next == len(p.groups) {
		if len(p.given) > 0 {
			p.tries--
			p.planRest(start)
		}
		return
	}
	for _, set := range p.bestTeamSets(next, start.distinct) {
		if p.tries == 0 {
			return
		}
		p.withTeam(next, set, start)
	}
}

// withTeam goes on with the set for the class.
func (p *planner) withTeam(class int, set teamSet, start partialPlan) {
	taken, chosen := len(p.taken), len(p.given)
	for i, device := range set.devices {
		p.taken = append(p.taken, set.gpus[i])
		p.given = append(p.given, assignedDevice{class, device})
		start.served = start.served.plus(class)
	}
	start.distinct = set.distinct
	p.chooseTeams(class+1, start)
	p.taken, p.given = p.taken[:taken], p.given[:chosen]
}

// planRest serves what the sets leave to be served, and keeps the plan if it is the best.
func (p *planner) planRest(start partialPlan) {
	ways := slices.Clone(p.assignments)
	for _, g := range p.taken {
		ways[g] = ways[g][:1]
	}
	chosen := p.combineAssignments(ways, start)
	if chosen == nil {
		return
	}
	p.found = true
	all := slices.Clone(p.given)
	for g, way := range chosen {
		for _, given := range way.items {
			all = append(all, assignedDevice{given.group, p.items[g][given.item].device})
		}
	}
	p.keepIfBest(all)
}

// picksOf deals the devices out to the requests, ascending.
func (c *search) picksOf(all []assignedDevice) []Pick {
	picks := make([]Pick, len(c.alternatives))
	for i, class := range c.groups {
		var devices []int
		for _, g := range all {
			if g.group == i {
				devices = append(devices, g.device)
			}
		}
		slices.Sort(devices)
		for m, request := range class.members {
			picks[request] = Pick{Alternative: c.alternatives[request], Devices: devices[m*class.perRequest : (m+1)*class.perRequest]}
		}
	}
	return picks
}
