package fit

// ChooseBySearch is Choose for the first alternatives of a demand, without serving anything greedily.
func ChooseBySearch(n *Node, req *Requirements) (Choice, bool) {
	c := newSearch(newHeapNodeView(n, nil), req, make([]int, len(req.Requests)))
	return choiceOf(c.run(c.searchFixedValues))
}
