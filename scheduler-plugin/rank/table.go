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

// table is what is kept for one demand: the verdict on every node at one revision of the index. Nodes
// without an entry cannot serve the demand.
type table struct {
	mu       sync.RWMutex
	revision uint64
	places   map[string]*place
	order    *btree.BTree[*place]
	// delegated are the nodes that fit does not decide, with the reason.
	delegated map[string]error
}

// place is the standing of a node that can serve the demand.
type place struct {
	name   string
	mixed  uint64
	choice fit.Choice
}

// degree is that of the tree: a node of it fills a few lines of the processor's cache.
const degree = 16

func newTable() *table {
	return &table{places: map[string]*place{}, order: btree.New(degree, before), delegated: map[string]error{}}
}

// before reports whether a comes first: by score, and of equals in an order that has nothing to do with
// their names, so that the first few are not all of one rack.
func before(a, b *place) bool {
	return cmp.Or(
		cmp.Compare(b.choice.Score, a.choice.Score), cmp.Compare(a.mixed, b.mixed), cmp.Compare(a.name, b.name),
	) < 0
}

func mix(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:])
}

// update judges the nodes that changed since the last update.
func (t *table) update(r *Rank, d *requirements.Demand) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed, now := r.nodes.Changed(t.revision)
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		t.forget(name)
		if n := changed[name]; n != nil {
			t.judge(r, d, n)
			continue
		}
		d.Forget(name)
	}
	t.revision = now
}

func (t *table) forget(name string) {
	delete(t.delegated, name)
	if old, ok := t.places[name]; ok {
		delete(t.places, name)
		t.order.Delete(old)
	}
}

func (t *table) judge(r *Rank, d *requirements.Demand, n *index.Node) {
	choice, fits, err := r.try(d, n)
	switch {
	case err != nil:
		t.delegated[n.Name] = err
	case fits:
		p := &place{name: n.Name, mixed: mix(n.Name), choice: choice}
		t.places[n.Name] = p
		t.order.ReplaceOrInsert(p)
	}
}
