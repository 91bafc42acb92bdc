package intree

import (
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// Manager is the scheduler's manager of claims and devices, which also records allocations in the index, before another
// pod can get the same devices. It is safe for concurrent use: the goroutines that bind pods write through it.
type Manager struct {
	fwk.SharedDRAManager
	index *index.Index
	// order is held while an allocation begins or ends, so that tracker and index see the same order.
	order *sync.Mutex
}

// NewManager returns a manager that records allocations in the index.
func NewManager(m fwk.SharedDRAManager, x *index.Index) Manager {
	return Manager{SharedDRAManager: m, index: x, order: &sync.Mutex{}}
}

// ResourceClaims returns the tracker of claims.
func (m Manager) ResourceClaims() fwk.ResourceClaimTracker {
	return allocationRecorder{ResourceClaimTracker: m.SharedDRAManager.ResourceClaims(), index: m.index, order: m.order}
}

// allocationRecorder records allocations in flight in the index: before the tracker has them, and until after the
// tracker has dropped them, so that the index never holds less than the tracker.
type allocationRecorder struct {
	fwk.ResourceClaimTracker
	index *index.Index
	order *sync.Mutex
}

// SignalClaimPendingAllocation begins an allocation that is decided and not written.
func (t allocationRecorder) SignalClaimPendingAllocation(uid types.UID, claim *resourceapi.ResourceClaim) error {
	t.order.Lock()
	defer t.order.Unlock()
	shared := t.GetPendingAllocation(uid) != nil
	if !shared {
		t.index.AddPendingAllocation(claim)
	}
	err := t.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim)
	if !shared && t.GetPendingAllocation(uid) == nil {
		// The tracker rejected it, or the claim is already allocated.
		t.index.RemovePendingAllocation(uid)
	}
	return err
}

// MaybeRemoveClaimPendingAllocation ends an allocation, unless other pods share it.
func (t allocationRecorder) MaybeRemoveClaimPendingAllocation(uid types.UID, force bool) bool {
	t.order.Lock()
	defer t.order.Unlock()
	removed := t.ResourceClaimTracker.MaybeRemoveClaimPendingAllocation(uid, force)
	if removed {
		t.index.RemovePendingAllocation(uid)
	}
	return removed
}

// AssumeClaimAfterAPICall records a claim that was written and is not observed yet. The tracker rejects a claim of
// which it has a newer version or none. The index decides separately, since it receives events at other times.
func (t allocationRecorder) AssumeClaimAfterAPICall(claim *resourceapi.ResourceClaim) error {
	t.index.AssumeClaim(claim)
	return t.ResourceClaimTracker.AssumeClaimAfterAPICall(claim)
}

// AssumedClaimRestore drops the assumed claim.
func (t allocationRecorder) AssumedClaimRestore(namespace, name string) {
	t.ResourceClaimTracker.AssumedClaimRestore(namespace, name)
	t.index.RestoreClaim(types.NamespacedName{Namespace: namespace, Name: name})
}
