package fit

import "github.com/tessera-gpu/tessera/api/gpu"

// Requirements is what all claims of a pod require of one node. Devices are positions in Node.Devices. All requests get
// different devices, except shared ones with room for both.
type Requirements struct {
	Requests    []Request
	Constraints []Constraint
}

// Request is a request for devices.
type Request struct {
	// Name is how messages call it: claim/request.
	Name string
	// Alternatives are in order of preference: the first that all requests allow is taken
	// (firstAvailable). A request without a choice has one.
	Alternatives []Alternative
}

// Alternative is one way to serve a request.
type Alternative struct {
	// Name is that of the subrequest; empty for the only alternative of a request.
	Name string
	// Description describes the request for messages, such as the name of its class.
	Description string
	// Candidates are the devices that selectors and taints allow, whether or not they are free.
	Candidates Set
	// Count is how many devices are needed, at least one.
	Count int
	// Shares are the requested shares by device of a shared shape; nil if no candidate is shared.
	Shares []gpu.Share
}

// Constraint binds the devices of several requests of one claim to each other.
type Constraint struct {
	// Attribute is its name, for messages.
	Attribute string
	// Distinct demands different values, else all are equal (distinctAttribute, matchAttribute).
	Distinct bool
	// Members are the requests, or single alternatives, whose devices are bound.
	Members []Member
	// Values are the numbers of the attribute's value by device; 0 means that the device lacks the
	// attribute and cannot be taken by a member.
	Values []int32
}

// Member is a part of a constraint.
type Member struct {
	// Request is the position of the request, Alternative that of the alternative, or -1 for all.
	Request, Alternative int
}

// shareOf returns the share that is required of the device.
func (a *Alternative) shareOf(device int) gpu.Share {
	if a.Shares == nil {
		return gpu.Share{}
	}
	return a.Shares[device]
}

// useOf returns the use that the device takes if it serves the alternative.
func (a *Alternative) useOf(n *Node, device int) gpu.Use {
	use := n.Devices[device].Use
	use.Share = a.shareOf(device)
	return use
}

// isTeam reports whether the alternative requires several whole GPUs.
func (a *Alternative) isTeam(devices []Device) bool {
	if a.Count < 2 {
		return false
	}
	for device := range a.Candidates.all {
		if !isWholeGPU(devices[device].Use.Shape) {
			return false
		}
	}
	return true
}

// isWholeGPU reports whether the shape gives a GPU to one claim alone.
func isWholeGPU(s gpu.Shape) bool { return s == gpu.Whole || s == gpu.VFIO }
