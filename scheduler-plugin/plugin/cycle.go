package plugin

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/rank"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// cycleKey is the key under which an attempt keeps its state. Pods that the in-tree plugin handles alone have none:
// pods without claims, and pods whose claims are all allocated.
const cycleKey fwk.StateKey = Name

// cycle is the state of one attempt to schedule a pod with claims to be allocated. Copies share it.
type cycle struct {
	pod *corev1.Pod
	// order is the order of the nodes for the requirements. It is nil if the in-tree allocator decides on every node, for
	// delegateReason.
	order          *rank.Order
	requirements   *requirements.PodRequirements
	delegateReason reason
	// alternatives is true for each request that has alternatives (firstAvailable).
	alternatives []bool
	// extended are the pod's extended resources.
	extended []corev1.ResourceName
	// allNodes is true if the previous attempt found none of its candidates fit, so that this one considers all nodes.
	// narrowed is true if nodes that might serve the pod are not candidates.
	allNodes bool
	narrowed bool

	// budget limits the searches of fit on all nodes, delegation the in-tree allocator.
	budget     *fit.Budget
	delegation *delegation
	// tooComplex is true if there is no result for a node because a limit is exceeded. Of the delegated nodes, exceeded is the
	// number of those that take too long, and skipped of those that are not evaluated yet.
	tooComplex        atomic.Bool
	exceeded, skipped atomic.Int64
	// digest identifies the pod's claims, whatever their names are. charged is the time that was charged to the throttle.
	digest  func() string
	charged time.Duration
	// sweep holds the results of earlier attempts for delegated nodes.
	sweep *sweep

	// preferred are the nodes in the NVLink clique of the pod's group.
	preferred sets.Set[string]

	// group is held while the state of the pod group may be written.
	group sync.Mutex

	mu sync.Mutex
	// verdicts holds the latest result by node.
	verdicts map[string]*nodeVerdict
}

// Clone returns the same cycle: verdicts depend on nodes and claims, not on the pods of a simulation.
func (c *cycle) Clone() fwk.StateData { return c }

// nodeVerdict is the result for one node.
type nodeVerdict struct {
	status *fwk.Status
	// score compares the node with others; preference is the in-tree plugin's own score.
	score, preference int64
	// state is the state of the in-tree plugin if it evaluated the node.
	state *intree.ScopedState
}

// cycleOf returns the state of the attempt, nil if the in-tree plugin handles the pod alone.
func cycleOf(cs fwk.CycleState) *cycle {
	data, err := cs.Read(cycleKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// verdict returns the latest result for the node.
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

// reason is why the in-tree allocator decides instead of fit. It is a label of metrics.
type reason string

const (
	undecided reason = "requirements"     // fit does not support the requirements
	unclear   reason = "node"             // fit does not decide on this node
	partly    reason = "partly_allocated" // some claims of the pod are already allocated
	sharing   reason = "pod_group"        // an allocation is shared within a pod group
	refused   reason = "rejected"         // the in-tree allocator rejected the choice of the previous attempt
)

// message returns the reason for people.
func (r reason) message() string {
	switch r {
	case undecided:
		return "the claims use a feature that only it supports"
	case unclear:
		return "the node's devices are not fully known"
	case partly:
		return "some claims of the pod are already allocated"
	case sharing:
		return "an allocation is shared within the pod group"
	case refused:
		return "it rejected the previous choice"
	}
	return string(r)
}

// delegatedRefusals returns the verdicts of nodes that the in-tree plugin rejected, in order of node.
func (c *cycle) delegatedRefusals() []*nodeVerdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rejected []*nodeVerdict
	for _, node := range slices.Sorted(maps.Keys(c.verdicts)) {
		if v := c.verdicts[node]; v.state != nil && v.state.Data != nil && !v.status.IsSuccess() {
			rejected = append(rejected, v)
		}
	}
	return rejected
}

// key is equal for attempts with equal requirements.
func (c *cycle) key() string {
	if c.requirements == nil {
		return ""
	}
	return c.requirements.Key
}
