package intree

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// Scope is a cluster as the in-tree plugin is to see it. Nothing in it is changed.
type Scope struct {
	// Slices are all ResourceSlices.
	Slices []*resourceapi.ResourceSlice
	// State is what is allocated; nil when nothing is.
	State *State
	// Claims are what listing all claims returns. Getting one by name is not limited to them.
	Claims []*resourceapi.ResourceClaim
	// Capture takes the allocations that are decided, in the place of the tracker of claims, if it is set.
	Capture *Capture
}

// ScopedManager is the manager of one in-tree instance. What is not part of its scene comes from the manager that
// it stands for: classes, single claims, and everything that is written to the tracker of claims.
//
// It serves one goroutine at a time.
type ScopedManager struct {
	fwk.SharedDRAManager
	scope Scope
}

// NewScopedManager returns a view that shows an empty cluster.
func NewScopedManager(manager fwk.SharedDRAManager) *ScopedManager {
	return &ScopedManager{SharedDRAManager: manager}
}

// SetScope changes the scene.
func (v *ScopedManager) SetScope(s Scope) { v.scope = s }

// ResourceSlices returns the slices of the scene.
func (v *ScopedManager) ResourceSlices() fwk.ResourceSliceLister { return sliceLister(v.scope.Slices) }

// ResourceClaims returns the tracker of claims as the scene has it.
func (v *ScopedManager) ResourceClaims() fwk.ResourceClaimTracker {
	return scopedTracker{ResourceClaimTracker: v.SharedDRAManager.ResourceClaims(), scope: v.scope}
}

// sliceLister lists the slices of a scene.
type sliceLister []*resourceapi.ResourceSlice

// ListWithDeviceTaintRules returns the slices; taints of rules are already in them.
func (l sliceLister) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) { return l, nil }

// scopedTracker answers from the scene what depends on the whole cluster.
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

// ListAllAllocatedDevices returns the devices of the scene that are allocated, the shared ones too: it is
// asked for only where devices cannot be shared.
func (t scopedTracker) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	return t.scope.State.devices(), nil
}

// SignalClaimPendingAllocation is captured if the scene says so.
func (t scopedTracker) SignalClaimPendingAllocation(uid types.UID, claim *resourceapi.ResourceClaim) error {
	if t.scope.Capture != nil {
		t.scope.Capture.Claims = append(t.scope.Capture.Claims, claim)
		return nil
	}
	return t.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim)
}
