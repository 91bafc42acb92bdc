package fit

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// servedCounts counts the devices by class, a byte each.
type servedCounts string

func (s servedCounts) plus(class int) servedCounts {
	counts := []byte(s)
	counts[class]++
	return servedCounts(counts)
}

// assignedItem is an item, by its position among those of its GPU, given to a class.
type assignedItem struct{ group, item int }

// assignment is a way in which one GPU serves a part of a demand.
type assignment struct {
	served   servedCounts
	distinct distinctValues
	// cost is without the residual: that depends on where the GPU is.
	cost  gpuCost
	items []assignedItem
}

// item is a device that a GPU can give, at most once: to one of the classes.
type item struct {
	device int
	groups []int
}

// itemsByGPU returns what the GPUs can give, by GPU. A shared device is an item for every class, and for every
// member of it: each may take a share.
func (c *search) itemsByGPU() [][]item {
	byDevice := map[int][]int{}
	for i := range c.groups {
		for device := range c.groups[i].alternative.Candidates.all {
			if c.allowsDevice(i, device) {
				byDevice[device] = append(byDevice[device], i)
			}
		}
	}
	all := make([][]item, len(c.gpus))
	for device := range c.node.Devices {
		takers, d := byDevice[device], c.node.Devices[device]
		switch {
		case len(takers) == 0:
		case !d.Use.Shape.Shared():
			all[d.GPU] = append(all[d.GPU], item{device, takers})
		default:
			for _, class := range takers {
				for range c.groups[class].members {
					all[d.GPU] = append(all[d.GPU], item{device, []int{class}})
				}
			}
		}
	}
	return all
}

// sameAssignments reports whether the GPUs, which give these items, have the same ways. It need not notice that they
// have.
func (c *search) sameAssignments(a, b int, ofA, ofB []item) bool {
	if len(c.distinct.last) > 0 || c.gpus[a].gpu.Kind != c.gpus[b].gpu.Kind || c.gpus[a].gpu.Occupancy != c.gpus[b].gpu.Occupancy {
		return false
	}
	return slices.EqualFunc(ofA, ofB, func(x, y item) bool {
		return c.node.Devices[x.device].Use == c.node.Devices[y.device].Use && slices.EqualFunc(x.groups, y.groups, func(i, j int) bool {
			a := c.groups[i].alternative
			return i == j && a.shareOf(x.device) == a.shareOf(y.device)
		})
	})
}

// assignmentsByGPU returns the ways by GPU.
func (c *search) assignmentsByGPU(items [][]item) [][]assignment {
	ways := make([][]assignment, len(items))
	for g := range items {
		for before := range g {
			if c.sameAssignments(before, g, items[before], items[g]) {
				ways[g] = ways[before]
				break
			}
		}
		if ways[g] == nil {
			ways[g] = c.enumerateAssignments(g, items[g])
		}
	}
	return ways
}

// assignmentStep is a state of a GPU on the way through its items.
type assignmentStep struct {
	occupancy gpu.Occupancy
	served    servedCounts
	distinct  distinctValues
	// from is the position of the step before, given what was added to it.
	from  int
	given assignedItem
}

// stepKey is what of a step matters to the items that follow.
type stepKey struct {
	slices   gpu.Mask
	engines  gpu.Engines
	shape    gpu.Shape
	shared   gpu.Share
	served   servedCounts
	distinct distinctValues
}

func (s *assignmentStep) key() stepKey {
	o := s.occupancy
	return stepKey{slices: o.Taken(), engines: o.Engines(), shape: o.Shape(), shared: o.Shared(), served: s.served, distinct: s.distinct}
}

// initialSteps is how many steps are made room for.
const initialSteps = 64

// enumerateAssignments returns the ways of the GPU: for every part that it can serve the one that costs least. The first
// one serves nothing.
func (c *search) enumerateAssignments(position int, items []item) []assignment {
	start := assignmentStep{occupancy: c.gpus[position].gpu.Occupancy, served: c.noneServed(), from: -1}
	steps, known := make([]assignmentStep, 0, initialSteps), make(map[stepKey]bool, initialSteps)
	steps, known[start.key()] = append(steps, start), true
	for i, item := range items {
		for from := range steps {
			for _, class := range item.groups {
				next, ok := c.assignDevice(&steps[from], class, item.device)
				if !ok {
					continue
				}
				if mark := next.key(); !known[mark] {
					known[mark] = true
					next.from, next.given = from, assignedItem{class, i}
					steps = append(steps, next)
				}
			}
		}
	}
	return c.cheapestAssignments(position, steps)
}

// noneServed returns the counts of a demand of which nothing is served.
func (c *search) noneServed() servedCounts { return servedCounts(make([]byte, len(c.groups))) }

// assignDevice returns the step with the device given to the class, and false when that is not possible.
func (c *search) assignDevice(s *assignmentStep, class, device int) (assignmentStep, bool) {
	taker := &c.groups[class]
	if int(s.served[class]) >= taker.needed() {
		return assignmentStep{}, false
	}
	use := taker.alternative.useOf(c.node, device)
	if !s.occupancy.Fits(use) {
		return assignmentStep{}, false
	}
	after, ok := c.addDistinct(s.distinct, class, device)
	if !ok {
		return assignmentStep{}, false
	}
	taken, err := s.occupancy.Take(use)
	if err != nil {
		return assignmentStep{}, false
	}
	return assignmentStep{occupancy: taken, served: s.served.plus(class), distinct: after}, true
}

// progress is what a way serves and spends.
type progress struct {
	served   servedCounts
	distinct distinctValues
}

// cheapestAssignments returns, of the steps that serve the same, those that cost least.
func (c *search) cheapestAssignments(position int, steps []assignmentStep) []assignment {
	var ways []assignment
	at, last := map[progress]int{}, []int{}
	for i := range steps {
		w := assignment{served: steps[i].served, distinct: steps[i].distinct, cost: c.costOf(position, steps[i].occupancy)}
		w.cost.residual = 0
		known, ok := at[progress{w.served, w.distinct}]
		switch {
		case !ok:
			at[progress{w.served, w.distinct}] = len(ways)
			ways, last = append(ways, w), append(last, i)
		case w.cost.compare(ways[known].cost) < 0:
			ways[known], last[known] = w, i
		}
	}
	for w, i := range last {
		for ; steps[i].from >= 0; i = steps[i].from {
			ways[w].items = append(ways[w].items, steps[i].given)
		}
		slices.Reverse(ways[w].items)
	}
	return ways
}
