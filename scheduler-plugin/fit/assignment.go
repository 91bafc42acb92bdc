package fit

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// servedCounts counts the devices that are given to each request group: one byte per group, so that values can be
// compared and used as map keys.
type servedCounts string

// plus returns the counts with one more device for the group.
func (s servedCounts) plus(group int) servedCounts {
	counts := []byte(s)
	counts[group]++
	return servedCounts(counts)
}

// assignedItem is an item, by its position among the items of its GPU, that is given to a request group.
type assignedItem struct{ group, item int }

// assignment is a way in which one GPU serves a part of the requirements.
type assignment struct {
	served   servedCounts
	distinct distinctValues
	// cost excludes the residual, which depends on the position of the GPU: GPUs with equal assignments share them.
	cost  gpuCost
	items []assignedItem
}

// item is a device that a GPU can give at most once, to one of the groups.
type item struct {
	device int
	groups []int
}

// itemsByGPU returns the items of each GPU. A shared device is one item for each member of each group that can use it,
// since each member can take a share.
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
		groups, d := byDevice[device], c.node.Devices[device]
		switch {
		case len(groups) == 0:
		case !d.Use.Shape.Shared():
			all[d.GPU] = append(all[d.GPU], item{device, groups})
		default:
			for _, group := range groups {
				for range c.groups[group].members {
					all[d.GPU] = append(all[d.GPU], item{device, []int{group}})
				}
			}
		}
	}
	return all
}

// sameAssignments reports whether two GPUs with these items are known to have equal assignments: same kind, same
// occupancy, same uses. False negatives only cost time.
func (c *search) sameAssignments(a, b int, itemsA, itemsB []item) bool {
	if len(c.distinct.last) > 0 || c.gpus[a].gpu.Kind != c.gpus[b].gpu.Kind || c.gpus[a].gpu.Occupancy != c.gpus[b].gpu.Occupancy {
		return false
	}
	return slices.EqualFunc(itemsA, itemsB, func(x, y item) bool {
		return c.node.Devices[x.device].Use == c.node.Devices[y.device].Use && slices.EqualFunc(x.groups, y.groups, func(i, j int) bool {
			a := c.groups[i].alternative
			return i == j && a.shareOf(x.device) == a.shareOf(y.device)
		})
	})
}

// stepSize is the number of steps that it takes to create and compare the progress of all groups.
func (c *search) stepSize() int { return 2 + (len(c.groups)+len(c.distinct.last))/8 }

// assignmentsByGPU returns the assignments of each GPU. GPUs that are alike share them: on a node with 8 idle GPUs they
// are enumerated once.
func (c *search) assignmentsByGPU(items [][]item) [][]assignment {
	assignments := make([][]assignment, len(items))
	for g := range items {
		for before := range g {
			if c.sameAssignments(before, g, items[before], items[g]) {
				assignments[g] = assignments[before]
				break
			}
		}
		if assignments[g] == nil {
			assignments[g] = c.enumerateAssignments(g, items[g])
		}
	}
	return assignments
}

// assignmentStep is a state of a GPU after some of its items are given.
type assignmentStep struct {
	occupancy gpu.Occupancy
	served    servedCounts
	distinct  distinctValues
	// from is the position of the previous step, -1 for the first one; given is the item added to it.
	from  int
	given assignedItem
}

// stepKey is the part of a step that later items depend on.
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

// initialSteps is the initial capacity for steps.
const initialSteps = 64

// enumerateAssignments returns the assignments of the GPU: for every part of the requirements that it can serve, the
// one that costs least. The first one serves nothing. It returns nil if the budget is exceeded.
//
// It is a breadth-first closure over subsets of the items. Steps with equal keys have the same future, so only the
// first one is kept: the number of steps depends on the states that the GPU can have and on the number of different
// requests, not on 2 to the number of items.
//
// Example: an empty H100, one group that needs two 1g.10gb. The items are the 7 placements. After the first item the
// steps are {} and {slice 0}; after all of them {}, 7 states with one MIG device and 21 with two. cheapestAssignments
// keeps one each for 0, 1 and 2 devices.
func (c *search) enumerateAssignments(position int, items []item) []assignment {
	start := assignmentStep{occupancy: c.gpus[position].gpu.Occupancy, served: c.noneServed(), from: -1}
	steps, known := make([]assignmentStep, 0, initialSteps), make(map[stepKey]bool, initialSteps)
	steps, known[start.key()] = append(steps, start), true
	for i, item := range items {
		// range evaluates steps once: steps that this item adds are not extended by the same item.
		for from := range steps {
			for _, group := range item.groups {
				if !c.budget.Spend(1) {
					return nil
				}
				next, ok := c.assignDevice(&steps[from], group, item.device)
				if !ok {
					continue
				}
				if key := next.key(); !known[key] {
					known[key] = true
					c.budget.Spend(c.stepSize())
					next.from, next.given = from, assignedItem{group, i}
					steps = append(steps, next)
				}
			}
		}
	}
	return c.cheapestAssignments(position, steps)
}

// noneServed returns the counts with no device given.
func (c *search) noneServed() servedCounts { return servedCounts(make([]byte, len(c.groups))) }

// assignDevice returns the step after the device is given to the group, and false if that is impossible: the group has
// all it needs, the device does not fit, or a value of a distinctAttribute is used already.
func (c *search) assignDevice(s *assignmentStep, group, device int) (assignmentStep, bool) {
	g := &c.groups[group]
	if int(s.served[group]) >= g.needed() {
		return assignmentStep{}, false
	}
	use := g.alternative.useOf(c.node, device)
	if !s.occupancy.Fits(use) {
		return assignmentStep{}, false
	}
	after, ok := c.addDistinct(s.distinct, group, device)
	if !ok {
		return assignmentStep{}, false
	}
	taken, err := s.occupancy.Take(use)
	if err != nil {
		return assignmentStep{}, false
	}
	return assignmentStep{occupancy: taken, served: s.served.plus(group), distinct: after}, true
}

// progress is how much of the requirements is served, and which values of distinctAttributes are used for it.
type progress struct {
	served   servedCounts
	distinct distinctValues
}

// cheapestAssignments returns, for every progress that the steps reach, the assignment that costs least.
func (c *search) cheapestAssignments(position int, steps []assignmentStep) []assignment {
	var assignments []assignment
	at, last := map[progress]int{}, []int{}
	for i := range steps {
		w := assignment{served: steps[i].served, distinct: steps[i].distinct, cost: c.costOf(position, steps[i].occupancy)}
		w.cost.residual = 0
		known, ok := at[progress{w.served, w.distinct}]
		switch {
		case !ok:
			at[progress{w.served, w.distinct}] = len(assignments)
			assignments, last = append(assignments, w), append(last, i)
		case w.cost.compare(assignments[known].cost) < 0:
			assignments[known], last[known] = w, i
		}
	}
	for w, i := range last {
		for ; steps[i].from >= 0; i = steps[i].from {
			assignments[w].items = append(assignments[w].items, steps[i].given)
		}
		slices.Reverse(assignments[w].items)
	}
	return assignments
}
