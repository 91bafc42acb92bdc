package index

import (
	"slices"
	"sync"
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Config configures an index.
type Config struct {
	// Drivers are the names of our driver. Devices of other drivers are foreign.
	Drivers []string
	// Weights determine the tables of every kind of GPU.
	Weights fit.Weights
}

// Index has the published and allocated devices of every node. All methods are safe for concurrent use.
type Index struct {
	config Config
	// snapshots has the current *Node of each node name; nonLocal is the result of gatherNonLocal, nil when it must be
	// computed again. Both are read without the lock.
	snapshots sync.Map
	nonLocal  atomic.Pointer[nonLocal]
	// mapping is the number of ResourceSlices with devices that provide resources of their node.
	mapping atomic.Int64

	// mu guards all fields below. The work under the lock depends on the objects of an event, not on the number of
	// nodes.
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

// Node returns the node with the name, and false if no devices are published on it. It takes no lock.
func (x *Index) Node(name string) (*Node, bool) {
	known, ok := x.snapshots.Load(name)
	if !ok {
		return nil, false
	}
	n, ok := known.(*Node)
	return n, ok
}

// Changed returns the nodes that changed after the revision, by name, and the current revision. The value of a removed
// node is nil. Revision 0 returns all nodes. The cost depends on the number of returned nodes. Only the last
// maxRemovedNodes removals are recorded: a caller with an older revision may keep nodes that Node does not return.
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

// ours reports whether the driver is one of Config.Drivers.
func (x *Index) ours(driver string) bool { return slices.Contains(x.config.Drivers, driver) }
