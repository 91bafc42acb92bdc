package doctor

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// affectedPods returns the pods of the selected holders, each with the health that its status reports. A claim without pods is returned as itself.
func (n *nodeState) affectedPods(holders []gpus.Holder, selected func(gpus.Holder) bool) []AffectedPod {
	var list []AffectedPod
	for _, h := range holders {
		if !selected(h) {
			continue
		}
		p := AffectedPod{Namespace: h.Claim.Namespace, Claim: h.Claim.Name, Device: h.Device, Health: h.Condition}
		if len(h.Pods) == 0 {
			list = append(list, p)
		}
		for _, user := range h.Pods {
			p.Pod, p.Phase, p.Health = user.Name, user.Phase, h.Condition
			if reported, ok := n.podHealth(p); ok {
				p.Health = reported.text
			}
			list = append(list, p)
		}
	}
	return list
}

// anyHolder selects every holder.
func anyHolder(gpus.Holder) bool { return true }

// podsWithDevices returns the pods that hold a device of the node, published or not.
func (n *nodeState) podsWithDevices() []AffectedPod {
	var list []AffectedPod
	for _, g := range n.gpus {
		list = append(list, n.affectedPods(g.Holders, func(h gpus.Holder) bool { return len(h.Pods) > 0 })...)
	}
	unpublished, _ := n.podsOfUnpublishedPools()
	return append(list, slices.DeleteFunc(unpublished, func(p AffectedPod) bool { return p.Pod == "" })...)
}

// reportedHealth is the health of a claim's devices in a pod's status, and the text about it.
type reportedHealth struct {
	health corev1.ResourceHealthStatus
	text   string
}

// claimPrefix begins the names of claims in a pod's allocatedResourcesStatus (KEP-4680). The pod's own name of the claim follows and, where the
// container names one, "/" and the request.
const claimPrefix = "claim:"

// podHealth returns the worst health of the claim's devices in the pod's status; false when the status has none.
func (n *nodeState) podHealth(p AffectedPod) (reportedHealth, bool) {
	pod := n.pods[p.Namespace+"/"+p.Pod]
	if pod == nil {
		return reportedHealth{}, false
	}
	own := podClaimName(pod, p.Claim)
	var worst reportedHealth
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, resource := range container.AllocatedResourcesStatus {
			name, is := strings.CutPrefix(string(resource.Name), claimPrefix)
			name, _, _ = strings.Cut(name, "/")
			if !is || name != own {
				continue
			}
			for _, r := range resource.Resources {
				if healthOrder[r.Health] > healthOrder[worst.health] {
					worst = reportedHealth{r.Health, string(r.Health)}
					if r.Message != nil {
						worst.text += detail(*r.Message)
					}
				}
			}
		}
	}
	return worst, worst.health != ""
}

// healthOrder orders the health values of pod status, the worst last.
var healthOrder = map[corev1.ResourceHealthStatus]int{
	corev1.ResourceHealthStatusHealthy: 1, corev1.ResourceHealthStatusUnknown: 2, corev1.ResourceHealthStatusUnhealthy: 3,
}

// podClaimName returns the name under which the pod's spec refers to the claim.
func podClaimName(pod *corev1.Pod, claim string) string {
	for _, used := range pod.Spec.ResourceClaims {
		if used.ResourceClaimName != nil && *used.ResourceClaimName == claim {
			return used.Name
		}
	}
	for _, generated := range pod.Status.ResourceClaimStatuses {
		if generated.ResourceClaimName != nil && *generated.ResourceClaimName == claim {
			return generated.Name
		}
	}
	return ""
}
