package rank

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// nodeTable holds the results of one set of requirements on all nodes, at one revision of the index. A node without an
// entry cannot serve the requirements.
//
// The invariant is that ranked and order hold the same entries, and that ranked, delegated, tooComplex and pending have no
// node in common.
type nodeTable struct {
	mu       sync.RWMutex
	revision uint64
	ranked   map[string]*rankedNode
	order    *btree.BTree[*rankedNode]
	// delegated are the nodes on which the in-tree allocator decides, with the reason.
	delegated map[string]error
	// tooComplex are the nodes on which the search exceeds fit.NodeSteps.
	tooComplex sets.Set[string]
	// pending are the nodes that are not evaluated yet, queue the same nodes in the order in which they will be.
	pending sets.Set[string]
	queue   []string
}

// rankedNode is a node that can serve the requirements.
type rankedNode struct {
	name       string
	shuffleKey uint64
	choice     fit.Choice
}

// treeDegree is the degree of the tree: a tree node fills a few cache lines.
const treeDegree = 16

func newNodeTable() *nodeTable {
	return &nodeTable{
		ranked: map[string]*rankedNode{}, order: btree.New(treeDegree, ranksBefore), delegated: map[string]error{},
		tooComplex: sets.New[string](), pending: sets.New[string](),
	}
}

// ranksBefore reports whether a is better: by score, and for equal scores by a hash of the name. The order must be the
// same at every call, and should not follow names, so that the first nodes are not all in one rack.
func ranksBefore(a, b *rankedNode) bool {
	return cmp.Or(
		cmp.Compare(b.choice.Score, a.choice.Score), cmp.Compare(a.shuffleKey, b.shuffleKey), cmp.Compare(a.name, b.name),
	) < 0
}

func shuffleKeyOf(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:])
}

// update evaluates the nodes that changed since the last update, and those that are pending, as far as the budget allows.
func (t *nodeTable) update(r *Rank, req *requirements.PodRequirements, b *fit.Budget) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed, now := r.nodes.Changed(t.revision)
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		t.removeNode(name)
		if changed[name] == nil {
			req.DropNode(name)
			continue
		}
		if !t.pending.Has(name) {
			t.pending.Insert(name)
			t.queue = append(t.queue, name)
		}
	}
	t.revision = now
	for len(t.queue) > 0 && !b.Exceeded() {
		name := t.queue[0]
		n, known := changed[name]
		if !known {
			n, _ = r.nodes.Node(name)
		}
		if n != nil && !t.evaluateNode(r, req, n, b) {
			return
		}
		t.pending.Delete(name)
		t.queue = t.queue[1:]
	}
}

func (t *nodeTable) removeNode(name string) {
	delete(t.delegated, name)
	t.tooComplex.Delete(name)
	if old, ok := t.ranked[name]; ok {
		delete(t.ranked, name)
		t.order.Delete(old)
	}
}

// evaluateNode evaluates a node and returns false if the budget is exceeded before there is a result.
func (t *nodeTable) evaluateNode(r *Rank, req *requirements.PodRequirements, n *index.Node, b *fit.Budget) bool {
	a := r.evaluateNode(req, n, b)
	switch {
	case a.TooComplex && b.Exceeded():
		return false
	case a.TooComplex:
		t.tooComplex.Insert(n.Name)
	case a.Err != nil:
		t.delegated[n.Name] = a.Err
	case a.Fits:
		p := &rankedNode{name: n.Name, shuffleKey: shuffleKeyOf(n.Name), choice: a.Choice}
		t.ranked[n.Name] = p
		t.order.ReplaceOrInsert(p)
	}
	return true
}
