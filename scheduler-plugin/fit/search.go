package fit

// search finds devices for several requests, or for requests with constraints. If there are any, it finds some:
//
//  1. matchAttributes: each combination of values is tried (fixMatchValues). With fixed values they only exclude devices.
//  2. Equal requests are one group (groupRequests), so that equal requests are not permuted.
//  3. The groups are served greedily (serveGreedily), which is enough in almost all cases.
//  4. Otherwise every GPU lists the parts of the requirements that it can serve (enumerateAssignments).
//  5. The lists are combined GPU by GPU (combineAssignments).
//
// GPUs of a node depend on each other only through the number of devices that each group still needs and the values
// that a distinctAttribute has used. That is what makes step 5 possible, where a search over devices would be
// exponential.
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
	// anyResult ends the search with the first result.
	anyResult bool
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
	c := newSearch(s, req, alternatives)
	return c.run(c.planFixedValues)
}

// run calls plan for all fixed values, and returns the best result.
func (c *search) run(plan func()) *plannedChoice {
	if c.budget.Spend(len(c.requirements.Requests) * (1 + len(c.requirements.Constraints))) {
		c.fixMatchValues(0, plan)
	}
	return c.best
}

func newSearch(s *nodeView, req *Requirements, alternatives []int) *search {
	c := &search{
		nodeView: s, requirements: req, alternatives: alternatives, groups: groupRequests(req, alternatives),
		values: make([]int32, len(req.Constraints)),
	}
	c.distinct = newDistinctNumbers(c)
	return c
}

// fixMatchValues calls plan for every combination of values of the matchAttributes from the constraint on.
func (c *search) fixMatchValues(constraint int, plan func()) {
	switch {
	case !c.budget.Spend(len(c.groups)*len(c.node.Devices)/8 + 1):
	case !c.hasEnoughDevices():
	case constraint == len(c.values):
		plan()
	case c.requirements.Constraints[constraint].Distinct || !c.isBinding(constraint):
		c.fixMatchValues(constraint+1, plan)
	default:
		for _, value := range c.possibleValues(constraint) {
			c.values[constraint] = value
			c.fixMatchValues(constraint+1, plan)
			if c.budget.Exceeded() || c.best != nil && c.anyResult {
				return
			}
		}
		c.values[constraint] = 0
	}
}
