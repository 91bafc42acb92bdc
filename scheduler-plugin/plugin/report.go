package plugin

import (
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Report is what an attempt to schedule a pod found about one node, for people.
type Report struct {
	// Decided is true if fit decides on the node. Otherwise the in-tree allocator does, and Reason is why.
	Decided bool
	Fits    bool
	// Devices are the names of the devices that the pod would get.
	Devices []string
	// Reason is what the choice takes and costs, or what is missing.
	Reason string
}

// Report returns what the attempt found about the node, and false if the pod needs no choice of devices. It is called
// after PreFilter.
func (p *Plugin) Report(cs fwk.CycleState, node string) (Report, bool) {
	c := cycleOf(cs)
	if c == nil {
		return Report{}, false
	}
	if c.order == nil {
		return Report{Reason: "delegated to the in-tree allocator: " + c.delegateReason.message()}, true
	}
	a := c.order.OnNode(node, c.pod.UID)
	switch {
	case a.TooComplex:
		return Report{Decided: true, Reason: reasonTooComplex}, true
	case a.Err != nil:
		return Report{Reason: a.Err.Error()}, true
	case a.Node == nil:
		return Report{Decided: true, Reason: "publishes no devices"}, true
	}
	demands, err := c.requirements.OnNode(a.Node, c.budget)
	if err != nil {
		return Report{Reason: err.Error()}, true
	}
	if !a.Fits {
		return Report{Decided: true, Reason: fit.Explain(&a.Node.Fit, demands, c.budget.Part(fit.NodeSteps)).String()}, true
	}
	r := Report{Decided: true, Fits: true, Reason: fit.Describe(&a.Node.Fit, demands, a.Choice)}
	for _, pick := range a.Choice.Picks {
		for _, device := range pick.Devices {
			r.Devices = append(r.Devices, a.Node.Devices[device].Name)
		}
	}
	return r, true
}

// Node returns the devices that are published on a node and what claims hold of them; false if there are none.
func (p *Plugin) Node(name string) (*index.Node, bool) { return p.shared.index.Node(name) }

// RequirementsOf returns what the claims of the pod of an attempt require; nil if the pod requires no devices or the in-tree allocator decides. It is called after
// PreFilter.
func (p *Plugin) RequirementsOf(cs fwk.CycleState) *requirements.PodRequirements {
	if c := cycleOf(cs); c != nil {
		return c.requirements
	}
	return nil
}

// ReadRequirements returns what claims require; see requirements.Reader.
func (p *Plugin) ReadRequirements(claims []*resourceapi.ResourceClaim, b *fit.Budget) (*requirements.PodRequirements, error) {
	return p.shared.reader.Read(claims, b)
}
