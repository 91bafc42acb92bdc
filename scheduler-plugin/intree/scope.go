package intree

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// Scope is what an in-tree instance sees of the cluster. It is not changed.
type Scope struct {
	// Slices are all ResourceSlices.
	Slices []*resourceapi.ResourceSlice
	// State is what is allocated, nil if nothing is.
	State *State
	// Claims are what listing all claims returns. Getting one by name is not limited to them.
	Claims []*resourceapi.ResourceClaim
	// Capture receives decided allocations instead of the tracker of claims, if it is not nil.
	Capture *Capture
}

// ScopedManager is the manager of claims and devices of one in-tree instance. What the scope does not contain comes
// from the embedded manager: classes, single claims, and writes to the tracker of claims. It is used by one goroutine
// at a time.
type ScopedManager struct {
	fwk.SharedDRAManager
	scope Scope
}

// NewScopedManager returns a manager with an empty scope.
func NewScopedManager(manager fwk.SharedDRAManager) *ScopedManager {
	return &ScopedManager{SharedDRAManager: manager}
}

// SetScope replaces the scope.
func (v *ScopedManager) SetScope(s Scope) { v.scope = s }

// ResourceSlices lists the ResourceSlices of the scope.
func (v *ScopedManager) ResourceSlices() fwk.ResourceSliceLister { return sliceLister(v.scope.Slices) }

// ResourceClaims returns the tracker of claims with the scope.
func (v *ScopedManager) ResourceClaims() fwk.ResourceClaimTracker {
	return scopedTracker{ResourceClaimTracker: v.SharedDRAManager.ResourceClaims(), scope: v.scope}
}

// sliceLister lists the ResourceSlices of a scope.
type sliceLister []*resourceapi.ResourceSlice

// ListWithDeviceTaintRules returns the ResourceSlices, which already contain the taints of DeviceTaintRules.
func (l sliceLister) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) { return l, nil }

// scopedTracker is a tracker of claims whose questions about the whole cluster are answered from the scope.
type scopedTracker struct {
	fwk.ResourceClaimTracker
	scope Scope
}

// List returns the claims of the scene.
func (t scopedTracker) List() ([]*resourceapi.ResourceClaim, error) { return t.scope.Claims, nil }

// GatherAllocatedState returns the state of the scene.
func (t scopedTracker) GatherAllocatedState() (*structured.AllocatedState, error) {
	return t.scope.State.allocated(), nil
}

// ListAllAllocatedDevices returns the allocated devices of the scope, including shared ones: it is called only if
// devices cannot be shared.
func (t scopedTracker) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	return t.scope.State.devices(), nil
}

// SignalClaimPendingAllocation passes the allocation to Capture, or to the tracker if there is none.
func (t scopedTracker) SignalClaimPendingAllocation(uid types.UID, claim *resourceapi.ResourceClaim) error {
	if t.scope.Capture != nil {
		t.scope.Capture.Claims = append(t.scope.Capture.Claims, claim)
		return nil
	}
	return t.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim)
}
