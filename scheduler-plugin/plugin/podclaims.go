package plugin

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
)

// claimsKey is the key under which PreFilter keeps the claims of the pod in the cycle state. A pod without claims and
// without extended resources has none.
const claimsKey fwk.StateKey = Name + "/claims"

// podClaims are the claims of a pod at the start of an attempt, except those for extended resources.
type podClaims struct {
	// pending are the claims to be allocated.
	pending []*resourceapi.ResourceClaim
	// allocated is the number of allocated claims, results are their devices.
	allocated int
	results   []resourceapi.DeviceRequestAllocationResult
	// sharing is true if a pending claim has an allocation in flight that the pod may share.
	sharing bool
}

// Clone returns the same claims, which are not changed.
func (of *podClaims) Clone() fwk.StateData { return of }

// claimsOfCycle returns the claims that PreFilter kept, nil if there are none.
func claimsOfCycle(cs fwk.CycleState) *podClaims {
	data, err := cs.Read(claimsKey)
	if err != nil {
		return nil
	}
	of, _ := data.(*podClaims)
	return of
}

// podClaimsOf returns the claims of the pod. All of them must exist.
func (p *Plugin) podClaimsOf(pod *corev1.Pod) (*podClaims, error) {
	of := &podClaims{}
	tracker := p.shared.manager.ResourceClaims()
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, fmt.Errorf("find the claim %s: %w", pod.Spec.ResourceClaims[i].Name, err)
		}
		if name == nil {
			continue
		}
		claim, err := tracker.Get(pod.Namespace, *name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("find the claim %s: %w", *name, err)
		case claim.Status.Allocation != nil:
			of.allocated++
			of.results = append(of.results, claim.Status.Allocation.Devices.Results...)
		default:
			of.pending = append(of.pending, claim)
			of.sharing = of.sharing || tracker.GetPendingAllocation(claim.UID) != nil
		}
	}
	return of, nil
}
