package index

import (
	"slices"
	"sync"
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Config says what is indexed.
type Config struct {
	// Drivers are the names of our driver: devices of others are foreign.
	Drivers []string
	// Weights go into the tables of every kind of GPU.
	Weights fit.Weights
	// Unseen is the key of a taint that devices are seen without; empty when there is none.
	Unseen string
}

// Index follows the cluster.
type Index struct {
	config Config
	// snapshots are the nodes by name (*Node), for readers without the lock; roaming are the slices that
	// Roaming returns, nil when they must be gathered again.
	snapshots sync.Map
	roaming   atomic.Pointer[roaming]

	// mu guards everything below. The work under it depends on the objects of an event, not on the
	// number of nodes.
	mu       sync.Mutex
	slices   map[string]*resourceapi.ResourceSlice
	pools    map[poolID]*pool
	roamers  map[poolID]*pool
	claims   map[types.UID]*claim
	names    map[types.NamespacedName]*claim
	buried   graveyard
	promises map[types.UID]*promise
	nodes    map[string]*node
	log      changeLog
	shared   shared
	stats    Stats
	cliques  cliques
}

// New returns an empty index.
func New(c Config) *Index {
	return &Index{
		config:   c,
		slices:   map[string]*resourceapi.ResourceSlice{},
		pools:    map[poolID]*pool{},
		roamers:  map[poolID]*pool{},
		claims:   map[types.UID]*claim{},
		names:    map[types.NamespacedName]*claim{},
		promises: map[types.UID]*promise{},
		nodes:    map[string]*node{},
		shared:   shared{weights: c.Weights},
		cliques:  cliques{},
	}
}

// Node returns the node of the name, and false when nothing is published on it. It waits for nobody.
func (x *Index) Node(name string) (*Node, bool) {
	known, ok := x.snapshots.Load(name)
	if !ok {
		return nil, false
	}
	n, ok := known.(*Node)
	return n, ok
}

// Changed returns the nodes that changed after the revision by name, nil ones for those that are gone,
// and the revision that the answer stands for. Revision 0 returns every node. The cost depends on the
// number of nodes returned. Of the nodes that are gone the last ones only are remembered (mostGone): who
// asks after a very long time meets names that Node does not know.
func (x *Index) Changed(since uint64) (nodes map[string]*Node, now uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	nodes = map[string]*Node{}
	for n := range x.log.after(since) {
		if n.snapshot != nil || since > 0 {
			nodes[n.name] = n.snapshot
		}
	}
	return nodes, x.log.revision
}

// ours reports whether the driver is ours.
func (x *Index) ours(driver string) bool { return slices.Contains(x.config.Drivers, driver) }
