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
//
// A search that exceeds the budget ends with the best result so far.
type search struct {
	*nodeView
	requirements *Requirements
	// alternatives is, by request, the position of the alternative that is to be served, or undecided.
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

// planFor returns the best result for these alternatives, by request, nil if there is none or if the budget is exceeded
// before one is found. Undecided requests are not served.
func (s *nodeView) planFor(req *Requirements, alternatives []int) *plannedChoice {
	return s.searchFor(req, alternatives, maxProgress)
}

// searchFor is planFor with another limit of the progresses that are searched exhaustively. With 0, the first result is
// returned.
func (s *nodeView) searchFor(req *Requirements, alternatives []int, limit int) *plannedChoice {
	if !s.budget.Spend(len(req.Requests) * (1 + len(req.Constraints))) {
		return nil
	}
	c := newSearch(s, req, alternatives)
	c.limit = limit
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
	case !c.budget.Spend(len(c.groups)*len(c.node.Devices)/8 + 1):
	case !c.hasEnoughDevices():
	case constraint == len(c.values):
		c.planFixedValues()
	case c.requirements.Constraints[constraint].Distinct || !c.isBinding(constraint):
		c.fixMatchValues(constraint + 1)
	default:
		for _, value := range c.possibleValues(constraint) {
			c.values[constraint] = value
			c.fixMatchValues(constraint + 1)
			if c.budget.Exceeded() || c.best != nil && c.limit == 0 {
				return
			}
		}
		c.values[constraint] = 0
	}
}
