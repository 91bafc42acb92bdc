package intree

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// Scene is a cluster as the in-tree plugin is to see it. Nothing in it is changed.
type Scene struct {
	// Slices are all ResourceSlices.
	Slices []*resourceapi.ResourceSlice
	// State is what is allocated; nil when nothing is.
	State *State
	// Claims are what listing all claims returns. Getting one by name is not limited to them.
	Claims []*resourceapi.ResourceClaim
	// Capture takes the allocations that are decided, in the place of the tracker of claims, if it is set.
	Capture *Capture
}

// View is the manager of one in-tree instance. What is not part of its scene comes from the manager that
// it stands for: classes, single claims, and everything that is written to the tracker of claims.
//
// It serves one goroutine at a time.
type View struct {
	fwk.SharedDRAManager
	scene Scene
}

// NewView returns a view that shows an empty cluster.
func NewView(manager fwk.SharedDRAManager) *View { return &View{SharedDRAManager: manager} }

// Show changes the scene.
func (v *View) Show(s Scene) { v.scene = s }

// ResourceSlices returns the slices of the scene.
func (v *View) ResourceSlices() fwk.ResourceSliceLister { return lister(v.scene.Slices) }

// ResourceClaims returns the tracker of claims as the scene has it.
func (v *View) ResourceClaims() fwk.ResourceClaimTracker {
	return tracker{ResourceClaimTracker: v.SharedDRAManager.ResourceClaims(), scene: v.scene}
}

// lister lists the slices of a scene.
type lister []*resourceapi.ResourceSlice

// ListWithDeviceTaintRules returns the slices; taints of rules are already in them.
func (l lister) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) { return l, nil }

// tracker answers from the scene what depends on the whole cluster.
type tracker struct {
	fwk.ResourceClaimTracker
	scene Scene
}

// List returns the claims of the scene.
func (t tracker) List() ([]*resourceapi.ResourceClaim, error) { return t.scene.Claims, nil }

// GatherAllocatedState returns the state of the scene.
func (t tracker) GatherAllocatedState() (*structured.AllocatedState, error) {
	return t.scene.State.allocated(), nil
}

// ListAllAllocatedDevices returns the devices of the scene that are allocated, the shared ones too: it is
// asked for only where devices cannot be shared.
func (t tracker) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	return t.scene.State.devices(), nil
}

// SignalClaimPendingAllocation is captured if the scene says so.
func (t tracker) SignalClaimPendingAllocation(uid types.UID, claim *resourceapi.ResourceClaim) error {
	if t.scene.Capture != nil {
		t.scene.Capture.Claims = append(t.scene.Capture.Claims, claim)
		return nil
	}
	return t.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim)
}
