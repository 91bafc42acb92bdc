package rank

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// nodeTable holds the results of one set of requirements on all nodes, at one revision of the index. A node without an
// entry cannot serve the requirements.
//
// The invariant is that ranked and order hold the same entries, and that ranked and delegated have no node in common.
type nodeTable struct {
	mu       sync.RWMutex
	revision uint64
	ranked   map[string]*rankedNode
	order    *btree.BTree[*rankedNode]
	// delegated are the nodes on which the in-tree allocator decides, with the reason.
	delegated map[string]error
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
	return &nodeTable{ranked: map[string]*rankedNode{}, order: btree.New(treeDegree, ranksBefore), delegated: map[string]error{}}
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

// update evaluates the nodes that changed since the last update.
func (t *nodeTable) update(r *Rank, req *requirements.PodRequirements) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed, now := r.nodes.Changed(t.revision)
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		t.removeNode(name)
		if n := changed[name]; n != nil {
			t.evaluateNode(r, req, n)
			continue
		}
		req.DropNode(name)
	}
	t.revision = now
}

func (t *nodeTable) removeNode(name string) {
	delete(t.delegated, name)
	if old, ok := t.ranked[name]; ok {
		delete(t.ranked, name)
		t.order.Delete(old)
	}
}

func (t *nodeTable) evaluateNode(r *Rank, req *requirements.PodRequirements, n *index.Node) {
	choice, fits, err := r.evaluateNode(req, n)
	switch {
	case err != nil:
		t.delegated[n.Name] = err
	case fits:
		p := &rankedNode{name: n.Name, shuffleKey: shuffleKeyOf(n.Name), choice: choice}
		t.ranked[n.Name] = p
		t.order.ReplaceOrInsert(p)
	}
}
