package index

import (
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
}

// Index follows the cluster.
type Index struct {
	Config
}

// New returns an empty index.
func New(c Config) *Index { return &Index{Config: c} }

// Node returns the node of the name, and false when nothing is published on it.
func (x *Index) Node(name string) (*Node, bool) { return nil, false }

// Changed returns the nodes that changed after the revision, in order of name, nil ones for those that
// are gone, and the revision that the answer stands for. Revision 0 returns every node. The cost depends
// on the number of nodes returned.
func (x *Index) Changed(since uint64) (nodes map[string]*Node, now uint64) { return nil, 0 }

// Roaming returns the slices of devices that are not bound to one node, of every driver.
func (x *Index) Roaming() []*resourceapi.ResourceSlice { return nil }

// SetSlice and DeleteSlice take in what is published, taints of rules included. Events may come in any
// order and more than once.
func (x *Index) SetSlice(slice *resourceapi.ResourceSlice)    {}
func (x *Index) DeleteSlice(slice *resourceapi.ResourceSlice) {}

// SetClaim and DeleteClaim take in what the API server has. An older version than the one known changes
// nothing.
func (x *Index) SetClaim(claim *resourceapi.ResourceClaim)    {}
func (x *Index) DeleteClaim(claim *resourceapi.ResourceClaim) {}

// Pend takes in an allocation that is decided and not written (SignalClaimPendingAllocation), Settle ends
// that (MaybeRemoveClaimPendingAllocation). Assume takes in what was written and is not yet observed
// (AssumeClaimAfterAPICall), Restore goes back to what was observed (AssumedClaimRestore).
func (x *Index) Pend(claim *resourceapi.ResourceClaim)   {}
func (x *Index) Settle(uid types.UID)                    {}
func (x *Index) Assume(claim *resourceapi.ResourceClaim) {}
func (x *Index) Restore(claim types.NamespacedName)      {}

// Promise keeps devices of a node for a pod that is to come: they count as held for everybody else
// (Node.For). A later promise to the same pod replaces the earlier one; Redeem ends it.
func (x *Index) Promise(pod types.UID, node string, devices []resourceapi.DeviceRequestAllocationResult) {
}
func (x *Index) Redeem(pod types.UID) {}
