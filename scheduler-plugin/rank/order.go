package rank

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Order is the order of the nodes for one demand. It shows the cluster as the last Rank.Order for an
// equal demand found it. It is safe for concurrent use.
//
// What is promised to a pod counts as held in the order; only On knows better. So a pod's promised node
// is asked with On, whether or not the order has it.
type Order struct {
	rank         *Rank
	requirements *requirements.PodRequirements
	table        *nodeTable
}

// Answer is what one node has for the demand.
type Answer struct {
	// Node is what was looked at, as the pod may see it; nil when the index does not have it.
	Node *index.Node
	// Fits reports that the node serves the demand, with Choice.
	Fits   bool
	Choice fit.Choice
	// Err wraps requirements.ErrDelegate when fit does not decide on the node; nil when it does.
	Err error
}

// Best returns the names of at most so many nodes that can serve the demand and that are allowed, the
// best first. It asks about no more nodes than it must; allow must not call the order. The cost is that
// of the nodes asked about.
func (o *Order) Best(nodes int, allow func(name string) bool) []string {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	var best []string
	o.table.order.Ascend(func(p *rankedNode) bool {
		if len(best) == nodes {
			return false
		}
		// The index does not remember for ever which nodes are gone.
		if _, known := o.rank.nodes.Node(p.name); known && allow(p.name) {
			best = append(best, p.name)
		}
		return true
	})
	return best
}

// Delegated returns the names of the nodes that fit does not decide, in order of name: the in-tree
// allocator must be asked about each.
func (o *Order) Delegated() []string {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	return slices.Sorted(maps.Keys(o.table.delegated))
}

// Count returns how many nodes can serve the demand, those that fit does not decide not counted.
func (o *Order) Count() int {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	return len(o.table.ranked)
}

// Revision returns that of the index which the order shows.
func (o *Order) Revision() uint64 {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	return o.table.revision
}

// OnNode returns what the node has for the demand now, whatever the pod is promised there included. It is a
// lookup as long as the node has not changed since Rank.Order and the pod is promised nothing on it.
func (o *Order) OnNode(name string, pod types.UID) Answer {
	a, ok := o.cachedAnswer(name, pod)
	if ok {
		return a
	}
	a.Choice, a.Fits, a.Err = o.rank.evaluateNode(o.requirements, a.Node)
	return a
}

// cachedAnswer returns what the order says about the node, and false with the node alone when it cannot say.
func (o *Order) cachedAnswer(name string, pod types.UID) (Answer, bool) {
	t := o.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	// The node is looked up under the lock: when it is no newer than the table, it is the one judged.
	n, ok := o.rank.nodes.Node(name)
	if !ok {
		return Answer{}, true
	}
	seen := n.ForPod(pod)
	if seen != n || n.Revision > t.revision {
		return Answer{Node: seen}, false
	}
	if err, ok := t.delegated[name]; ok {
		return Answer{Node: n, Err: err}, true
	}
	p, fits := t.ranked[name]
	if fits {
		return Answer{Node: n, Fits: true, Choice: p.choice}, true
	}
	return Answer{Node: n}, true
}

// evaluateNode judges one node.
func (r *Rank) evaluateNode(req *requirements.PodRequirements, n *index.Node) (fit.Choice, bool, error) {
	asked, err := req.OnNode(n)
	if err != nil {
		return fit.Choice{}, false, fmt.Errorf("judge node %s: %w", n.Name, err)
	}
	choice, fits := r.choose(&n.Fit, asked)
	return choice, fits, nil
}
