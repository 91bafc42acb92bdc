package fit

// search finds devices for several requests, or for requests with constraints. It is exact:
//
//  1. matchAttributes: each combination of values is tried (fixMatchValues). With fixed values they only exclude devices.
//  2. Equal requests are one group (groupRequests), so that equal requests are not permuted.
//  3. Every GPU lists the parts of the requirements that it can serve (enumerateAssignments).
//  4. The lists are combined GPU by GPU (combineAssignments).
//
// GPUs of a node depend on each other only through the number of devices that each group still needs and the values
// that a distinctAttribute has used. That is what makes step 4 possible, where a search over devices would be
// exponential. Sets of several whole GPUs are the exception, since their quality depends on links between GPUs: they
// are chosen before (planner).
type search struct {
	*nodeView
	requirements *Requirements
	// alternatives are the alternatives of the first requests, which are to be served; later requests are ignored.
	alternatives []int
	groups       []requestGroup
	// values is, by constraint, the value that all members must have; 0 for a distinctAttribute.
	values []int32
	// distinct numbers the values of distinctAttributes.
	distinct distinctNumbers
	// limit is the largest number of progresses that is searched exhaustively (maxProgress).
	limit int
	// best is the best result so far, nil if there is none.
	best *plannedChoice
}

// plannedChoice is a result of a search.
type plannedChoice struct {
	picks   []Pick
	outcome outcome
	score   int64
}

// chooseSeveral returns the best devices for all requests.
func (s *nodeView) chooseSeveral(req *Requirements) (Choice, bool) {
	alternatives := make([]int, 0, len(req.Requests))
	return s.extendAlternatives(req, alternatives)
}

// extendAlternatives returns the result for the first combination of alternatives that can be served, in the order of
// the API: the alternative of the first request changes last. chosen are the alternatives of the first requests.
// Combinations whose first requests cannot be served are not extended.
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

// hasAlternatives reports whether a request has more than one alternative.
func hasAlternatives(req *Requirements) bool {
	for i := range req.Requests {
		if len(req.Requests[i].Alternatives) > 1 {
			return true
		}
	}
	return false
}

// planFor returns the best result for the first requests with these alternatives, nil if there is none.
func (s *nodeView) planFor(req *Requirements, alternatives []int) *plannedChoice {
	c := newSearch(s, req, alternatives)
	c.fixMatchValues(0)
	return c.best
}

func newSearch(s *nodeView, req *Requirements, alternatives []int) *search {
	c := &search{
		nodeView: s, requirements: req, alternatives: alternatives, groups: groupRequests(req, alternatives),
		limit: maxProgress, values: make([]int32, len(req.Constraints)),
	}
	c.distinct = newDistinctNumbers(c)
	return c
}

// fixMatchValues plans with every combination of values of the matchAttributes from the constraint on.
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
