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
	// HiddenTaint is the key of a taint that devices are seen without; empty when there is none.
	HiddenTaint string
}

// Index follows the cluster.
type Index struct {
	config Config
	// snapshots are the nodes by name (*Node), for readers without the lock; roaming are the slices that
	// Roaming returns, nil when they must be gathered again.
	snapshots sync.Map
	nonLocal  atomic.Pointer[nonLocal]

	// mu guards everything below. The work under it depends on the objects of an event, not on the
	// number of nodes.
	mu            sync.Mutex
	slices        map[string]*resourceapi.ResourceSlice
	pools         map[poolID]*pool
	nonLocalPools map[poolID]*pool
	claims        map[types.UID]*claim
	names         map[types.NamespacedName]*claim
	deleted       deletedClaims
	nominations   map[types.UID]*nomination
	nodes         map[string]*node
	log           changeLog
	intern        internTables
	stats         Stats
	cliques       cliques
}

// New returns an empty index.
func New(c Config) *Index {
	return &Index{
		config:        c,
		slices:        map[string]*resourceapi.ResourceSlice{},
		pools:         map[poolID]*pool{},
		nonLocalPools: map[poolID]*pool{},
		claims:        map[types.UID]*claim{},
		names:         map[types.NamespacedName]*claim{},
		nominations:   map[types.UID]*nomination{},
		nodes:         map[string]*node{},
		intern:        internTables{weights: c.Weights},
		cliques:       cliques{},
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
