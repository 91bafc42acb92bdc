package fit

import "slices"

// maxTeamSets limits the sets that are considered for a team if there are other requests, and the combinations of sets
// of several teams.
const maxTeamSets = 32

// maxProgress limits the progresses of an exhaustive search (countProgress). The limit makes results worse, never
// impossible.
const maxProgress = 32

// planFixedValues finds the best devices for the fixed values of matchAttributes, and keeps them if they are the best
// so far.
//
// Teams, requests for several whole GPUs, come first: the best sets of GPUs are tried, and the rest of the requirements
// is planned with what each of them leaves. If none of the first maxTeamSets leaves enough, whole GPUs are assigned
// like other devices, whatever their links. Requirements with more than limit progresses are served greedily; only if
// that fails, and no other values gave a result, everything is searched.
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
	if c.budget.Exceeded() {
		return
	}
	if p.chooseTeams(0, partialPlan{progress: progress{served: c.noneServed()}}); !p.found {
		p.planRest(partialPlan{progress: progress{served: c.noneServed()}})
	}
}

// countProgress returns the number of progresses that are possible: the product of needed+1 over the groups, or a
// number beyond the limit. Two groups that need 3 and 1 devices have 8: (0..3) x (0..1).
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

// planner tries sets of GPUs for the teams among the groups, by depth-first search: a set for the first team, a set of
// the remaining GPUs for the second one, and so on. Sets are tried best first, at most tries combinations.
type planner struct {
	*search
	// items and assignments are by GPU.
	items       [][]item
	assignments [][]assignment
	// taken are the GPUs of the sets on the current path, given their devices.
	taken []int
	given []assignedDevice
	// tries is the number of combinations that may still be tried; found is true once one of them left enough.
	tries int
	found bool
}

// chooseTeams chooses a set for the first team among the groups from the position on, and then for later teams. start
// has the progress of the sets on the current path.
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
		if p.tries == 0 || p.budget.Exceeded() {
			return
		}
		p.withTeam(next, set, start)
	}
}

// withTeam continues with the set for the group, and takes it back.
func (p *planner) withTeam(group int, set teamSet, start partialPlan) {
	taken, chosen := len(p.taken), len(p.given)
	for i, device := range set.devices {
		p.taken = append(p.taken, set.gpus[i])
		p.given = append(p.given, assignedDevice{group, device})
		start.served = start.served.plus(group)
	}
	start.distinct = set.distinct
	p.chooseTeams(group+1, start)
	p.taken, p.given = p.taken[:taken], p.given[:chosen]
}

// planRest serves the rest of the requirements with the GPUs that the teams leave, and keeps the result if it is the best.
func (p *planner) planRest(start partialPlan) {
	assignments := slices.Clone(p.assignments)
	for _, g := range p.taken {
		assignments[g] = assignments[g][:1] // the first assignment gives nothing
	}
	chosen := p.combineAssignments(assignments, start)
	if chosen == nil {
		return
	}
	p.found = true
	all := slices.Clone(p.given)
	for g, a := range chosen {
		for _, given := range a.items {
			all = append(all, assignedDevice{given.group, p.items[g][given.item].device})
		}
	}
	p.keepIfBest(all)
}

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
