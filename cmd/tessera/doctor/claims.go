package doctor

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// claimFindings returns the findings about claims with devices of the node, as far as no fault of a GPU explains them.
func (n *nodeState) claimFindings() []Finding {
	var found []Finding
	for _, g := range n.gpus {
		for _, h := range g.Holders {
			pods := n.affectedPods([]gpus.Holder{h}, anyHolder)
			if h.Condition != "" && g.Held == nil {
				found = append(found, forGPU(g, Finding{
					Severity: gpu.Warning.String(), Reason: ReasonRefused, Pods: pods,
					Message:  "claim " + h.Claim.Namespace + "/" + h.Claim.Name + " is not prepared: " + h.Condition,
					NextStep: "follow the message; kubelet retries automatically",
				}))
				continue
			}
			if h.Severity == "" {
				found = append(found, n.podHealthFindings(g, pods)...)
			}
		}
	}
	return append(found, n.missingDeviceFindings()...)
}

// podHealthFindings returns a finding for each pod whose status reports a device as unhealthy or unknown while the GPU has no fault.
func (n *nodeState) podHealthFindings(g gpus.GPU, pods []AffectedPod) []Finding {
	var found []Finding
	for _, p := range pods {
		reported, ok := n.podHealth(p)
		if !ok || reported.health == corev1.ResourceHealthStatusHealthy {
			continue
		}
		severity, help := gpu.Critical, "kubelet updates the status within seconds of the agent's report; if it does not, check the agent's log"
		if reported.health == corev1.ResourceHealthStatusUnknown {
			severity, help = gpu.Warning, "kubelet has had no report from the agent for 30 s: check the agent"
		}
		found = append(found, forGPU(g, Finding{
			Severity: severity.String(), Reason: ReasonPodUnhealthy, Pods: []AffectedPod{p}, NextStep: help,
			Message: "the status of pod " + p.Namespace + "/" + p.Pod + " reports " + string(reported.health) + ", but the GPU has no fault",
		}))
	}
	return found
}

// missingDeviceFindings returns the claims whose device is not in its pool, although the pool is published.
func (n *nodeState) missingDeviceFindings() []Finding {
	var found []Finding
	for _, r := range n.readings {
		for _, claim := range n.claims {
			for _, result := range claim.Status.Allocation.Devices.Results {
				if result.Driver != r.Driver || result.Pool != r.Pool {
					continue
				}
				if _, err := r.Decode(result); err == nil {
					continue
				}
				found = append(found, Finding{
					Severity: gpu.Critical.String(), Reason: ReasonDeviceGone, Pods: n.affectedPods([]gpus.Holder{n.holderOf(claim, result)}, anyHolder),
					Message:  "claim " + claim.Namespace + "/" + claim.Name + " holds device " + result.Device + ", which is no longer published",
					NextStep: "check whether the GPU was removed or the NodeConfig was changed; then delete the claim's pods, so that new claims get other devices",
				})
			}
		}
	}
	return found
}
