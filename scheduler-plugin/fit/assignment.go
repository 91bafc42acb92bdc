package fit

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// served counts the devices by class, a byte each.
type served string

func (s served) plus(class int) served {
	counts := []byte(s)
	counts[class]++
	return served(counts)
}

// given is an item, by its position among those of its GPU, given to a class.
type given struct{ class, item int }

// way is a way in which one GPU serves a part of a demand.
type way struct {
	served served
	spent  spent
	// cost is without the residual: that depends on where the GPU is.
	cost  cost
	given []given
}

// item is a device that a GPU can give, at most once: to one of the classes.
type item struct {
	device  int
	classes []int
}

// items returns what the GPUs can give, by GPU. A shared device is an item for every class, and for every
// member of it: each may take a share.
func (c *search) items() [][]item {
	byDevice := map[int][]int{}
	for i := range c.classes {
		for device := range c.classes[i].alternative.Candidates.all {
			if c.allowed(i, device) {
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
				for range c.classes[class].members {
					all[d.GPU] = append(all[d.GPU], item{device, []int{class}})
				}
			}
		}
	}
	return all
}

// alike reports whether the GPUs, which give these items, have the same ways. It need not notice that they
// have.
func (c *search) alike(a, b int, ofA, ofB []item) bool {
	if len(c.distinct.last) > 0 || c.gpus[a].gpu.Kind != c.gpus[b].gpu.Kind || c.gpus[a].gpu.Occupancy != c.gpus[b].gpu.Occupancy {
		return false
	}
	return slices.EqualFunc(ofA, ofB, func(x, y item) bool {
		return c.node.Devices[x.device].Use == c.node.Devices[y.device].Use && slices.EqualFunc(x.classes, y.classes, func(i, j int) bool {
			a := c.classes[i].alternative
			return i == j && a.share(x.device) == a.share(y.device)
		})
	})
}

// everyWay returns the ways by GPU.
func (c *search) everyWay(items [][]item) [][]way {
	ways := make([][]way, len(items))
	for g := range items {
		for before := range g {
			if c.alike(before, g, items[before], items[g]) {
				ways[g] = ways[before]
				break
			}
		}
		if ways[g] == nil {
			ways[g] = c.ways(g, items[g])
		}
	}
	return ways
}

// step is a state of a GPU on the way through its items.
type step struct {
	occupancy gpu.Occupancy
	served    served
	spent     spent
	// from is the position of the step before, given what was added to it.
	from  int
	given given
}

// mark is what of a step matters to the items that follow.
type mark struct {
	slices  gpu.Mask
	engines gpu.Engines
	shape   gpu.Shape
	shared  gpu.Share
	served  served
	spent   spent
}

func (s *step) mark() mark {
	o := s.occupancy
	return mark{slices: o.Taken(), engines: o.Engines(), shape: o.Shape(), shared: o.Shared(), served: s.served, spent: s.spent}
}

// usualSteps is how many steps are made room for.
const usualSteps = 64

// ways returns the ways of the GPU: for every part that it can serve the one that costs least. The first
// one serves nothing.
func (c *search) ways(position int, items []item) []way {
	start := step{occupancy: c.gpus[position].gpu.Occupancy, served: c.nothing(), from: -1}
	steps, known := make([]step, 0, usualSteps), make(map[mark]bool, usualSteps)
	steps, known[start.mark()] = append(steps, start), true
	for i, item := range items {
		for from := range steps {
			for _, class := range item.classes {
				next, ok := c.give(&steps[from], class, item.device)
				if !ok {
					continue
				}
				if mark := next.mark(); !known[mark] {
					known[mark] = true
					next.from, next.given = from, given{class, i}
					steps = append(steps, next)
				}
			}
		}
	}
	return c.cheapest(position, steps)
}

// nothing returns the counts of a demand of which nothing is served.
func (c *search) nothing() served { return served(make([]byte, len(c.classes))) }

// give returns the step with the device given to the class, and false when that is not possible.
func (c *search) give(s *step, class, device int) (step, bool) {
	taker := &c.classes[class]
	if int(s.served[class]) >= taker.need() {
		return step{}, false
	}
	use := taker.alternative.use(c.node, device)
	if !s.occupancy.Fits(use) {
		return step{}, false
	}
	after, ok := c.spend(s.spent, class, device)
	if !ok {
		return step{}, false
	}
	taken, err := s.occupancy.Take(use)
	if err != nil {
		return step{}, false
	}
	return step{occupancy: taken, served: s.served.plus(class), spent: after}, true
}

// part is what a way serves and spends.
type part struct {
	served served
	spent  spent
}

// cheapest returns, of the steps that serve the same, those that cost least.
func (c *search) cheapest(position int, steps []step) []way {
	var ways []way
	at, last := map[part]int{}, []int{}
	for i := range steps {
		w := way{served: steps[i].served, spent: steps[i].spent, cost: c.cost(position, steps[i].occupancy)}
		w.cost.residual = 0
		known, ok := at[part{w.served, w.spent}]
		switch {
		case !ok:
			at[part{w.served, w.spent}] = len(ways)
			ways, last = append(ways, w), append(last, i)
		case w.cost.compare(ways[known].cost) < 0:
			ways[known], last[known] = w, i
		}
	}
	for w, i := range last {
		for ; steps[i].from >= 0; i = steps[i].from {
			ways[w].given = append(ways[w].given, steps[i].given)
		}
		slices.Reverse(ways[w].given)
	}
	return ways
}
