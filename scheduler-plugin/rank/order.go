package rank

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Order is the order of the nodes for one set of requirements, as of the last Rank.Order for equal requirements. It is
// safe for concurrent use.
//
// Devices that are nominated for a pod count as held in the order. Only OnNode takes into account that the pod itself
// may have them. The nominated node of a pod is therefore evaluated with OnNode, whether or not it is in the order.
type Order struct {
	rank         *Rank
	requirements *requirements.PodRequirements
	table        *nodeTable
	budget       *fit.Budget
}

// Answer is the result for one node.
type Answer struct {
	// Node is the evaluated node, as the pod sees it; nil if the index does not have it.
	Node *index.Node
	// Fits reports that the node serves the demand, with Choice.
	Fits   bool
	Choice fit.Choice
	// Err wraps requirements.ErrDelegate if the in-tree allocator decides on the node.
	Err error
	// TooComplex reports that there is no result: the search exceeded fit.NodeSteps, or the budget of the order.
	TooComplex bool
}

// Best returns the names of at most so many allowed nodes that can serve the requirements, the best one first. allow is
// called for no more nodes than necessary, with a lock held: it must not call the order.
func (o *Order) Best(nodes int, allow func(name string) bool) []string {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	var best []string
	o.table.order.Ascend(func(p *rankedNode) bool {
		if len(best) == nodes {
			return false
		}
		// The index drops removed nodes after some time (index.Changed).
		if _, known := o.rank.nodes.Node(p.name); known && allow(p.name) {
			best = append(best, p.name)
		}
		return true
	})
	return best
}

// Delegated returns the names of the nodes on which the in-tree allocator decides, in order.
func (o *Order) Delegated() []string {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	return slices.Sorted(maps.Keys(o.table.delegated))
}

// Count returns the number of nodes that can serve the requirements, without delegated ones.
func (o *Order) Count() int {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	return len(o.table.ranked)
}

// Unevaluated returns the number of nodes without a result: on how many the search exceeds fit.NodeSteps, and how many are
// pending.
func (o *Order) Unevaluated() (tooComplex, pending int) {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	return len(o.table.tooComplex), len(o.table.pending)
}

// Revision returns the revision of the index that the order reflects.
func (o *Order) Revision() uint64 {
	o.table.mu.RLock()
	defer o.table.mu.RUnlock()
	return o.table.revision
}

// OnNode returns the result for the node as it is now, including devices that are nominated for the pod. It is a lookup
// unless the node has changed since Rank.Order, is pending, or has nominations for the pod.
func (o *Order) OnNode(name string, pod types.UID) Answer {
	a, ok := o.cachedAnswer(name, pod)
	if ok {
		return a
	}
	return o.rank.evaluateNode(o.requirements, a.Node, o.budget)
}

// cachedAnswer returns the result from the table, or false and the node if the node must be evaluated.
//
// The node is read from the index under the lock of the table. If its revision is not newer than that of the table, the
// table's result is for this very snapshot: update evaluates, under the same lock, all nodes up to its revision.
func (o *Order) cachedAnswer(name string, pod types.UID) (Answer, bool) {
	t := o.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	n, ok := o.rank.nodes.Node(name)
	if !ok {
		return Answer{}, true
	}
	seen := n.ForPod(pod)
	if seen != n || n.Revision > t.revision || t.pending.Has(name) {
		return Answer{Node: seen}, false
	}
	if err, ok := t.delegated[name]; ok {
		return Answer{Node: n, Err: err}, true
	}
	if t.tooComplex.Has(name) {
		return Answer{Node: n, TooComplex: true}, true
	}
	p, fits := t.ranked[name]
	if fits {
		return Answer{Node: n, Fits: true, Choice: p.choice}, true
	}
	return Answer{Node: n}, true
}

// evaluateNode evaluates one node. Selectors take steps from the budget, the search at most fit.NodeSteps of them.
func (r *Rank) evaluateNode(req *requirements.PodRequirements, n *index.Node, b *fit.Budget) Answer {
	a := Answer{Node: n}
	demands, err := req.OnNode(n, b)
	switch {
	case errors.Is(err, fit.ErrTooComplex):
		a.TooComplex = true
		return a
	case err != nil:
		a.Err = fmt.Errorf("judge node %s: %w", n.Name, err)
		return a
	}
	search := b.Part(fit.NodeSteps)
	a.Choice, a.Fits = r.choose(&n.Fit, demands, search)
	a.TooComplex = !a.Fits && search.Exceeded()
	return a
}
