package fit

import (
	"fmt"
	"slices"
)

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

// Take returns the node after the devices of a choice for the requirements were taken. An error means that one of them is not free.
func (c Choice) Take(n Node, req *Requirements) (Node, error) {
	n.GPUs = slices.Clone(n.GPUs)
	for i, pick := range c.Picks {
		for _, device := range pick.Devices {
			g := &n.GPUs[n.Devices[device].GPU]
			after, err := g.Occupancy.Take(req.Requests[i].Alternatives[pick.Alternative].useOf(&n, device))
			if err != nil {
				return Node{}, fmt.Errorf("take a device of %s: %w", g.Name, err)
			}
			g.Occupancy = after
		}
	}
	return n, nil
}
