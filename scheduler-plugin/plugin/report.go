package plugin

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Report is what an attempt to schedule a pod found out about one node, for people.
type Report struct {
	// Decided says that the other fields are fit's word. If not, the in-tree allocator decides about the
	// node, and Reason says why.
	Decided bool
	Fits    bool
	// Devices are the names of the devices that the pod would get.
	Devices []string
	// Reason says what the choice takes and costs, or what is missing.
	Reason string
}

// Report returns what the attempt found out about the node, and false when the pod needs no devices to be
// chosen. It is called after PreFilter.
func (p *Plugin) Report(cs fwk.CycleState, node string) (Report, bool) {
	c := cycleOf(cs)
	if c == nil {
		return Report{}, false
	}
	if c.order == nil {
		return Report{Reason: "left to the in-tree allocator: " + string(c.delegateReason)}, true
	}
	a := c.order.OnNode(node, c.pod.UID)
	switch {
	case a.Err != nil:
		return Report{Reason: a.Err.Error()}, true
	case a.Node == nil:
		return Report{Decided: true, Reason: "publishes no devices"}, true
	}
	asked, err := c.requirements.OnNode(a.Node)
	if err != nil {
		return Report{Reason: err.Error()}, true
	}
	if !a.Fits {
		return Report{Decided: true, Reason: fit.Explain(&a.Node.Fit, asked).String()}, true
	}
	r := Report{Decided: true, Fits: true, Reason: fit.Describe(&a.Node.Fit, asked, a.Choice)}
	for _, pick := range a.Choice.Picks {
		for _, device := range pick.Devices {
			r.Devices = append(r.Devices, a.Node.Devices[device].Name)
		}
	}
	return r, true
}
