package rank

import (
	"sync"

	"k8s.io/utils/lru"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Nodes are the nodes of the cluster (index.Index).
type Nodes interface {
	Node(name string) (*index.Node, bool)
	Changed(since uint64) (nodes map[string]*index.Node, now uint64)
}

// Rank keeps the order of nodes for the requirements used last. It is safe for concurrent use. An update blocks only
// readers of the same requirements.
type Rank struct {
	nodes  Nodes
	choose func(*fit.Node, *fit.Requirements, *fit.Budget) (fit.Choice, bool)

	mu     sync.Mutex
	tables *lru.Cache
}

// New returns a rank that keeps so many orders. An order costs some hundred bytes per node.
func New(nodes Nodes, demands int) *Rank {
	return &Rank{nodes: nodes, choose: fit.Choose, tables: lru.New(demands)}
}

// Order updates the order for the requirements to the state of the index, and returns it. It is called once for each
// attempt to schedule a pod. The cost is that of the nodes that changed since the last call for equal requirements, of
// all nodes at the first call.
//
// The evaluation of nodes takes steps from the budget. Half of the budget is left for the methods of the order. Nodes that
// are not evaluated when the other half is used up are pending: a later call for equal requirements evaluates them first.
func (r *Rank) Order(req *requirements.PodRequirements, b *fit.Budget) *Order {
	t := r.table(req.Key)
	t.update(r, req, b.Half())
	return &Order{rank: r, requirements: req, table: t, budget: b}
}

// table returns the table for the key, and creates it if necessary.
func (r *Rank) table(key string) *nodeTable {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kept, ok := r.tables.Get(key); ok {
		if t, ok := kept.(*nodeTable); ok {
			return t
		}
	}
	t := newNodeTable()
	r.tables.Add(key, t)
	return t
}
