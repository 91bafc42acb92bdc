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

// nodeTable is what is kept for one demand: the verdict on every node at one revision of the index. Nodes
// without an entry cannot serve the demand.
type nodeTable struct {
	mu       sync.RWMutex
	revision uint64
	ranked   map[string]*rankedNode
	order    *btree.BTree[*rankedNode]
	// delegated are the nodes that fit does not decide, with the reason.
	delegated map[string]error
}

// rankedNode is the standing of a node that can serve the demand.
type rankedNode struct {
	name       string
	shuffleKey uint64
	choice     fit.Choice
}

// treeDegree is that of the tree: a node of it fills a few lines of the processor's cache.
const treeDegree = 16

func newNodeTable() *nodeTable {
	return &nodeTable{ranked: map[string]*rankedNode{}, order: btree.New(treeDegree, ranksBefore), delegated: map[string]error{}}
}

// ranksBefore reports whether a comes first: by score, and of equals in an order that has nothing to do with
// their names, so that the first few are not all of one rack.
func ranksBefore(a, b *rankedNode) bool {
	return cmp.Or(
		cmp.Compare(b.choice.Score, a.choice.Score), cmp.Compare(a.shuffleKey, b.shuffleKey), cmp.Compare(a.name, b.name),
	) < 0
}

func shuffleKeyOf(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:])
}

// update judges the nodes that changed since the last update.
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
		req.ForgetNode(name)
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
