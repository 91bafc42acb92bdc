package fit

import "slices"

// mostSets is how many ways to choose the sets of whole GPUs are tried for a demand that asks for more.
const mostSets = 32

// mostParts is how many parts a demand may have to be planned at its best.
const mostParts = 32

// plan finds the devices for the values that are fixed, and keeps them if they are the best so far.
//
// Requests for several whole GPUs get the best sets that leave enough to the others. When none of the
// first mostSets does, any way to serve them counts. A demand of many parts is served in steps (greedy),
// and only when they do not get to the end, and nothing was found with other values, all is tried.
func (c *search) plan() {
	p := planner{search: c, tries: mostSets}
	if c.parts() > c.limit {
		if all, ok := c.serve(); ok {
			c.keep(all)
			return
		}
		if c.best != nil {
			return
		}
		p.tries = 1
	}
	p.items = c.items()
	p.ways = c.everyWay(p.items)
	if p.sets(0, joined{part: part{served: c.nothing()}}); !p.found {
		p.rest(joined{part: part{served: c.nothing()}})
	}
}

// parts returns how many different parts of the demand can be served, or a number beyond the limit.
func (c *search) parts() int {
	parts := 1
	for i := range c.classes {
		parts *= c.classes[i].need() + 1
		if parts > c.limit {
			break
		}
	}
	return parts
}

// keep makes a plan of the devices, if it is the best so far.
func (c *search) keep(all []deal) {
	found := &plan{picks: c.picks(all)}
	found.outcome = c.outcomeOf(c.demand, found.picks)
	found.score = c.score(found.outcome)
	if c.best == nil || found.score > c.best.score {
		c.best = found
	}
}

// deal is a device that a class gets.
type deal struct{ class, device int }

// planner tries sets for the teams among the classes, one team after the other.
type planner struct {
	*search
	// items and ways are by GPU.
	items [][]item
	ways  [][]way
	// taken are the GPUs of the sets chosen so far, given their devices.
	taken []int
	given []deal
	// tries is how many more sets may be tried; found says that one left enough.
	tries int
	found bool
}

// sets chooses a set for the first team from the class on, and then for those after it.
func (p *planner) sets(from int, start joined) {
	next := from
	for next < len(p.classes) && !p.classes[next].alternative.whole(p.node.Devices) {
		next++
	}
	if next == len(p.classes) {
		if len(p.given) > 0 {
			p.tries--
			p.rest(start)
		}
		return
	}
	for _, set := range p.candidates(next, start.spent) {
		if p.tries == 0 {
			return
		}
		p.choose(next, set, start)
	}
}

// choose goes on with the set for the class.
func (p *planner) choose(class int, set devices, start joined) {
	taken, chosen := len(p.taken), len(p.given)
	for i, device := range set.devices {
		p.taken = append(p.taken, set.gpus[i])
		p.given = append(p.given, deal{class, device})
		start.served = start.served.plus(class)
	}
	start.spent = set.spent
	p.sets(class+1, start)
	p.taken, p.given = p.taken[:taken], p.given[:chosen]
}

// rest serves what the sets leave to be served, and keeps the plan if it is the best.
func (p *planner) rest(start joined) {
	ways := slices.Clone(p.ways)
	for _, g := range p.taken {
		ways[g] = ways[g][:1]
	}
	chosen := p.join(ways, start)
	if chosen == nil {
		return
	}
	p.found = true
	all := slices.Clone(p.given)
	for g, way := range chosen {
		for _, given := range way.given {
			all = append(all, deal{given.class, p.items[g][given.item].device})
		}
	}
	p.keep(all)
}

// picks deals the devices out to the requests, ascending.
func (c *search) picks(all []deal) []Pick {
	picks := make([]Pick, len(c.alternatives))
	for i, class := range c.classes {
		var devices []int
		for _, g := range all {
			if g.class == i {
				devices = append(devices, g.device)
			}
		}
		slices.Sort(devices)
		for m, request := range class.members {
			picks[request] = Pick{Alternative: c.alternatives[request], Devices: devices[m*class.each : (m+1)*class.each]}
		}
	}
	return picks
}
