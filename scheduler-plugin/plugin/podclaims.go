package plugin

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// podClaims are those of a pod, without the one that stands for extended resources.
type podClaims struct {
	// pending are to be allocated.
	pending   []*resourceapi.ResourceClaim
	allocated int
	// results are the devices of those that are allocated.
	results []resourceapi.DeviceRequestAllocationResult
	// sharing reports that one of the pending ones has an allocation in flight that the pod may share.
	sharing bool
}

func (p *Plugin) podClaimsOf(pod *corev1.Pod) (podClaims, error) {
	var of podClaims
	tracker := p.shared.manager.ResourceClaims()
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return podClaims{}, fmt.Errorf("find the claim %s: %w", pod.Spec.ResourceClaims[i].Name, err)
		}
		if name == nil {
			continue
		}
		claim, err := tracker.Get(pod.Namespace, *name)
		switch {
		case err != nil:
			return podClaims{}, fmt.Errorf("find the claim %s: %w", *name, err)
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
