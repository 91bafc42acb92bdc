package fit

// Choice is a complete answer to a demand on one node.
type Choice struct {
	// Picks are by request.
	Picks []Pick
	// Score compares the choices of one demand on different nodes: higher leaves more for the pods to
	// come. Of two choices on nodes that differ in nothing that matters the scores are equal.
	Score int64
}

// Pick is what a request gets.
type Pick struct {
	// Alternative is the position of the alternative that is served.
	Alternative int
	// Devices are the positions of the devices.
	Devices []int
}
