package fit

// search finds devices for several requests, or for those bound by constraints. The GPUs of a node do not
// depend on each other but for the numbers of devices that each request still needs and the values that a
// distinctAttribute forbids. So it lists for every GPU the ways in which it can serve a part (ways), and
// joins them GPU by GPU, keeping for each served part the cheapest way to get there (join). Both visit
// every part that can be served, which makes the search exact, and both depend on the number of different
// requests, not on the number of devices. The value that a matchAttribute demands is fixed before.
type search struct {
	*nodeView
	requirements *Requirements
	// alternatives are those of the requests that are to be served, which are the first ones.
	alternatives []int
	groups       []requestGroup
	// values are, by constraint, the value that all members must have; for a distinctAttribute they are 0.
	values []int32
	// distinct numbers what distinctAttributes tell apart.
	distinct distinctNumbers
	// limit is how many parts are planned at their best.
	limit int
	// best is the best plan that was found.
	best *plannedChoice
}

// plannedChoice is an answer.
type plannedChoice struct {
	picks   []Pick
	outcome outcome
	score   int64
}

// chooseSeveral serves the requests of the demand.
func (s *nodeView) chooseSeveral(req *Requirements) (Choice, bool) {
	alternatives := make([]int, 0, len(req.Requests))
	return s.extendAlternatives(req, alternatives)
}

// extendAlternatives finds the first alternatives for the requests that follow those chosen. A choice that already
// cannot be served is not extended.
func (s *nodeView) extendAlternatives(req *Requirements, chosen []int) (Choice, bool) {
	next := len(chosen)
	if next == len(req.Requests) {
		best := s.planFor(req, chosen)
		if best == nil {
			return Choice{}, false
		}
		return Choice{Picks: best.picks, Score: best.score}, true
	}
	for i := range req.Requests[next].Alternatives {
		tried := append(chosen, i)
		if len(tried) < len(req.Requests) && hasAlternatives(req) {
			if s.planFor(req, tried) == nil {
				continue
			}
		}
		if choice, ok := s.extendAlternatives(req, tried); ok {
			return choice, true
		}
	}
	return Choice{}, false
}

func hasAlternatives(req *Requirements) bool {
	for i := range req.Requests {
		if len(req.Requests[i].Alternatives) > 1 {
			return true
		}
	}
	return false
}

// planFor serves the first requests of the demand, with these alternatives; nil when that is impossible.
func (s *nodeView) planFor(req *Requirements, alternatives []int) *plannedChoice {
	c := newSearch(s, req, alternatives)
	c.fixMatchValues(0)
	return c.best
}

func newSearch(s *nodeView, req *Requirements, alternatives []int) *search {
	c := &search{nodeView: s, requirements: req, alternatives: alternatives, groups: groupRequests(req, alternatives), limit: maxProgress, values: make([]int32, len(req.Constraints))}
	c.distinct = newDistinctNumbers(c)
	return c
}

// fixMatchValues tries every value for the matchAttributes from the position on, and plans with each.
func (c *search) fixMatchValues(constraint int) {
	switch {
	case !c.hasEnoughDevices():
	case constraint == len(c.values):
		c.planFixedValues()
	case c.requirements.Constraints[constraint].Distinct || !c.isBinding(constraint):
		c.fixMatchValues(constraint + 1)
	default:
		for _, value := range c.possibleValues(constraint) {
			c.values[constraint] = value
			c.fixMatchValues(constraint + 1)
		}
		c.values[constraint] = 0
	}
}
