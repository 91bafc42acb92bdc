package upstream

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// checkAllocations holds a cluster to what every scheduler owes: each claim of a bound pod is allocated,
// and no device is given away twice. It returns how many claims are allocated.
func checkAllocations(ctx context.Context, client kubernetes.Interface) (int, error) {
	claims, err := client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list claims: %w", err)
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list pods: %w", err)
	}
	allocated := map[types.NamespacedName]bool{}
	holders := map[string]string{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		allocated[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = true
		for _, result := range claim.Status.Allocation.Devices.Results {
			device := result.Driver + "/" + result.Pool + "/" + result.Device
			holder := claim.Namespace + "/" + claim.Name
			if other := holders[device]; other != "" && !shared(result) {
				return 0, fmt.Errorf("device %s is allocated to the claims %s and %s", device, other, holder)
			}
			holders[device] = holder
		}
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "" {
			continue
		}
		for _, name := range claimNames(pod) {
			if !allocated[types.NamespacedName{Namespace: pod.Namespace, Name: name}] {
				return 0, fmt.Errorf("pod %s/%s is bound, but its claim %q is not allocated", pod.Namespace, pod.Name, name)
			}
		}
	}
	return len(allocated), nil
}

// shared reports whether a device may appear in other allocations too.
func shared(result resourceapi.DeviceRequestAllocationResult) bool {
	return result.ShareID != nil || (result.AdminAccess != nil && *result.AdminAccess)
}

// claimNames lists the claims of a pod: those it names, those made for it or its group, and that of its extended resources.
func claimNames(pod corev1.Pod) []string {
	var names []string
	for _, claim := range pod.Spec.ResourceClaims {
		if claim.ResourceClaimName != nil {
			names = append(names, *claim.ResourceClaimName)
		}
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil {
			names = append(names, *status.ResourceClaimName)
		}
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		names = append(names, status.ResourceClaimName)
	}
	return names
}
