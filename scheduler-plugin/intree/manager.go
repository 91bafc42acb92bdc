package intree

import (
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// Manager is the scheduler's manager of claims and devices, with an ear for what is decided: the index
// knows of an allocation before anybody else can be given the same devices. It is safe for concurrent
// use; the goroutines that bind pods write through it.
type Manager struct {
	fwk.SharedDRAManager
	index *index.Index
	// order is held while an allocation begins or ends in both, the tracker and the index.
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

// allocationRecorder tells the index about allocations in flight. An allocation is told before the tracker has it
// and ended after the tracker has dropped it, so that the index never shows less than the tracker.
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
		// The tracker refused, or found the claim allocated already.
		t.index.RemovePendingAllocation(uid)
	}
	return err
}

// MaybeRemoveClaimPendingAllocation ends it, if nobody else shares it.
func (t allocationRecorder) MaybeRemoveClaimPendingAllocation(uid types.UID, force bool) bool {
	t.order.Lock()
	defer t.order.Unlock()
	removed := t.ResourceClaimTracker.MaybeRemoveClaimPendingAllocation(uid, force)
	if removed {
		t.index.RemovePendingAllocation(uid)
	}
	return removed
}

// AssumeClaimAfterAPICall takes in a claim that was written and is not yet observed. The tracker refuses
// one that it knows a newer version of, or does not know yet; the index judges that for itself, since its
// events come on a way of their own.
func (t allocationRecorder) AssumeClaimAfterAPICall(claim *resourceapi.ResourceClaim) error {
	t.index.AssumeClaim(claim)
	return t.ResourceClaimTracker.AssumeClaimAfterAPICall(claim)
}

// AssumedClaimRestore goes back to what was observed.
func (t allocationRecorder) AssumedClaimRestore(namespace, name string) {
	t.ResourceClaimTracker.AssumedClaimRestore(namespace, name)
	t.index.RestoreClaim(types.NamespacedName{Namespace: namespace, Name: name})
}
