package fit

// Choice is the devices of one node for all requests.
type Choice struct {
	// Picks are by request.
	Picks []Pick
	// Score compares choices for equal requirements on different nodes: a higher score leaves more for later pods.
	// Choices on equal nodes have equal scores.
	Score int64
}

// Pick is the devices for one request.
type Pick struct {
	// Alternative is the position of the alternative that is served.
	Alternative int
	// Devices are the positions of the devices.
	Devices []int
}
