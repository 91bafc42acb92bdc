package fit

import "math"

// ChooseExactly is Choose for the first alternatives of a demand, with every demand planned at its best.
func ChooseExactly(n *Node, req *Requirements) (Choice, bool) {
	s := newHeapNodeView(n, nil)
	c := newSearch(s, req, make([]int, len(req.Requests)))
	c.limit = math.MaxInt
	c.fixMatchValues(0)
	if c.best == nil {
		return Choice{}, false
	}
	return Choice{Picks: c.best.picks, Score: c.best.score}, true
}
