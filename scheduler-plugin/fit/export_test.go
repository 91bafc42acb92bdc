package fit

import "math"

// ChooseExactly is Choose for the first alternatives of a demand, with every demand planned at its best.
func ChooseExactly(n *Node, d *Demand) (Choice, bool) {
	s := survey(n)
	c := newSearch(s, d, make([]int, len(d.Requests)))
	c.limit = math.MaxInt
	c.match(0)
	if c.best == nil {
		return Choice{}, false
	}
	return Choice{Picks: c.best.picks, Score: c.best.score}, true
}
