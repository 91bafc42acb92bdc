package plugin

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/rank"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// cycleKey is where a cycle's state is kept. Pods that the in-tree plugin handles alone have none: those
// without claims, and those whose claims are all allocated.
const cycleKey fwk.StateKey = Name

// cycle is the state of one attempt to schedule a pod with claims to be allocated. Copies share it.
type cycle struct {
	pod *corev1.Pod
	// order is that of the nodes for the pod's demand; nil when the in-tree allocator decides about every
	// node, why is the reason then.
	order          *rank.Order
	requirements   *requirements.PodRequirements
	delegateReason reason
	// alternatives says of each request of the demand whether the pod gave alternatives for it.
	alternatives []bool
	// extended are the pod's extended resources.
	extended []corev1.ResourceName
	// allNodes has the attempt look at every node, since a narrowed one found none; narrowed reports that
	// nodes which might serve the pod were left out.
	allNodes bool
	narrowed bool

	// preferred are the nodes to be preferred for the sake of the pod's group.
	preferred sets.Set[string]

	// group is held while the state of the pod group may be written.
	group sync.Mutex

	mu sync.Mutex
	// verdicts are by node.
	verdicts map[string]*nodeVerdict
}

// Clone returns the same cycle: verdicts depend on nodes and claims, not on the pods of a simulation.
func (c *cycle) Clone() fwk.StateData { return c }

// nodeVerdict is what was found about one node.
type nodeVerdict struct {
	status *fwk.Status
	// score compares the node with others; preference is the in-tree plugin's own score.
	score, preference int64
	// state is the in-tree plugin's, when it was asked.
	state *intree.ScopedState
}

// cycleOf returns the state of the cycle, nil when the in-tree plugin handles the pod alone.
func cycleOf(cs fwk.CycleState) *cycle {
	data, err := cs.Read(cycleKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// verdict returns what was found about the node last.
func (c *cycle) verdict(node string) (*nodeVerdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.verdicts[node]
	return v, ok
}

func (c *cycle) record(node string, v *nodeVerdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdicts[node] = v
}

// reason says why the in-tree allocator decides; it is a label of metrics.
type reason string

const (
	undecided reason = "requirements"     // fit cannot decide the demand, on any node
	unclear   reason = "node"             // nor on this node
	partly    reason = "partly_allocated" // some of the pod's claims are allocated already
	sharing   reason = "pod_group"        // a claim's allocation is shared within a pod group
	refused   reason = "rejected"         // the in-tree plugin refused what was chosen last time
	offering  reason = "device_plugin"    // a device plugin offers what the pod asks for, here
)

// delegatedRefusals returns the verdicts for which the in-tree plugin was asked and refused, in order of node.
func (c *cycle) delegatedRefusals() []*nodeVerdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	var asked []*nodeVerdict
	for _, node := range slices.Sorted(maps.Keys(c.verdicts)) {
		if v := c.verdicts[node]; v.state != nil && v.state.Data != nil && !v.status.IsSuccess() {
			asked = append(asked, v)
		}
	}
	return asked
}

// key is equal for cycles that ask for the same.
func (c *cycle) key() string {
	if c.requirements == nil {
		return ""
	}
	return c.requirements.Key
}
