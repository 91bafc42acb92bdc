package fit

// search finds devices for several requests, or for those bound by constraints. The GPUs of a node do not
// depend on each other but for the numbers of devices that each request still needs and the values that a
// distinctAttribute forbids. So it lists for every GPU the ways in which it can serve a part (ways), and
// joins them GPU by GPU, keeping for each served part the cheapest way to get there (join). Both visit
// every part that can be served, which makes the search exact, and both depend on the number of different
// requests, not on the number of devices. The value that a matchAttribute demands is fixed before.
type search struct {
	*sight
	demand *Demand
	// alternatives are those of the requests that are to be served, which are the first ones.
	alternatives []int
	classes      []class
	// values are, by constraint, the value that all members must have; for a distinctAttribute they are 0.
	values []int32
	// distinct numbers what distinctAttributes tell apart.
	distinct numbering
	// limit is how many parts are planned at their best.
	limit int
	// best is the best plan that was found.
	best *plan
}

// plan is an answer.
type plan struct {
	picks   []Pick
	outcome outcome
	score   int64
}

// several serves the requests of the demand.
func (s *sight) several(d *Demand) (Choice, bool) {
	alternatives := make([]int, 0, len(d.Requests))
	return s.extend(d, alternatives)
}

// extend finds the first alternatives for the requests that follow those chosen. A choice that already
// cannot be served is not extended.
func (s *sight) extend(d *Demand, chosen []int) (Choice, bool) {
	next := len(chosen)
	if next == len(d.Requests) {
		best := s.serveAll(d, chosen)
		if best == nil {
			return Choice{}, false
		}
		return Choice{Picks: best.picks, Score: best.score}, true
	}
	for i := range d.Requests[next].Alternatives {
		tried := append(chosen, i)
		if len(tried) < len(d.Requests) && hasChoice(d) {
			if s.serveAll(d, tried) == nil {
				continue
			}
		}
		if choice, ok := s.extend(d, tried); ok {
			return choice, true
		}
	}
	return Choice{}, false
}

func hasChoice(d *Demand) bool {
	for i := range d.Requests {
		if len(d.Requests[i].Alternatives) > 1 {
			return true
		}
	}
	return false
}

// serveAll serves the first requests of the demand, with these alternatives; nil when that is impossible.
func (s *sight) serveAll(d *Demand, alternatives []int) *plan {
	c := newSearch(s, d, alternatives)
	c.match(0)
	return c.best
}

func newSearch(s *sight, d *Demand, alternatives []int) *search {
	c := &search{sight: s, demand: d, alternatives: alternatives, classes: classes(d, alternatives), limit: mostParts, values: make([]int32, len(d.Constraints))}
	c.distinct = newNumbering(c)
	return c
}

// match tries every value for the matchAttributes from the position on, and plans with each.
func (c *search) match(constraint int) {
	switch {
	case !c.enough():
	case constraint == len(c.values):
		c.plan()
	case c.demand.Constraints[constraint].Distinct || !c.binds(constraint):
		c.match(constraint + 1)
	default:
		for _, value := range c.choices(constraint) {
			c.values[constraint] = value
			c.match(constraint + 1)
		}
		c.values[constraint] = 0
	}
}
