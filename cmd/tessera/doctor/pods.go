package doctor

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// sufferers returns the pods of the chosen holders; a claim that no pod uses stands for itself.
func (p *patient) sufferers(holders []gpus.Holder, chosen func(gpus.Holder) bool) []Sufferer {
	var list []Sufferer
	for _, h := range holders {
		if !chosen(h) {
			continue
		}
		s := Sufferer{Namespace: h.Claim.Namespace, Claim: h.Claim.Name, Device: h.Device, Says: h.Condition}
		if len(h.Pods) == 0 {
			list = append(list, s)
		}
		for _, user := range h.Pods {
			s.Pod, s.Phase, s.Says = user.Name, user.Phase, h.Condition
			if said, ok := p.says(s); ok {
				s.Says = said.text
			}
			list = append(list, s)
		}
	}
	return list
}

// saying is what a pod's status says of the devices of a claim.
type saying struct {
	health corev1.ResourceHealthStatus
	text   string
}

// claimPrefix begins the names of claims in a pod's allocatedResourcesStatus (KEP-4680); the pod's own name of the claim follows and,
// where one is named, a request.
const claimPrefix = "claim:"

// says returns the worst that the status of the pod says of the claim.
func (p *patient) says(s Sufferer) (saying, bool) {
	pod := p.pods[s.Namespace+"/"+s.Pod]
	if pod == nil {
		return saying{}, false
	}
	own := nameIn(pod, s.Claim)
	var worst saying
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, resource := range container.AllocatedResourcesStatus {
			name, is := strings.CutPrefix(string(resource.Name), claimPrefix)
			name, _, _ = strings.Cut(name, "/")
			if !is || name != own {
				continue
			}
			for _, r := range resource.Resources {
				if healths[r.Health] > healths[worst.health] {
					worst = saying{r.Health, string(r.Health)}
					if r.Message != nil {
						worst.text += told(*r.Message)
					}
				}
			}
		}
	}
	return worst, worst.health != ""
}

// healths orders what kubelet says, the worst last.
var healths = map[corev1.ResourceHealthStatus]int{
	corev1.ResourceHealthStatusHealthy: 1, corev1.ResourceHealthStatusUnknown: 2, corev1.ResourceHealthStatusUnhealthy: 3,
}

// nameIn returns the pod's own name of the claim.
func nameIn(pod *corev1.Pod, claim string) string {
	for _, used := range pod.Spec.ResourceClaims {
		if used.ResourceClaimName != nil && *used.ResourceClaimName == claim {
			return used.Name
		}
	}
	for _, made := range pod.Status.ResourceClaimStatuses {
		if made.ResourceClaimName != nil && *made.ResourceClaimName == claim {
			return made.Name
		}
	}
	return ""
}

// claimed returns what is wrong with claims of the node's devices that no fault of a GPU explains.
func (p *patient) claimed() []Finding {
	var found []Finding
	for _, g := range p.gpus {
		for _, h := range g.Holders {
			one := p.sufferers([]gpus.Holder{h}, func(gpus.Holder) bool { return true })
			if h.Condition != "" && g.Held == nil {
				found = append(found, on(g, Finding{
					Severity: gpu.Warning.String(), Reason: ReasonRefused, Pods: one,
					Message: "claim " + h.Claim.Namespace + "/" + h.Claim.Name + " is not prepared: " + h.Condition,
					Help:    "its message says what to do; it is tried again by itself",
				}))
				continue
			}
			if h.Severity == "" {
				found = append(found, p.unexplained(g, one)...)
			}
		}
	}
	return append(found, p.gone()...)
}

// unexplained returns pods that say that a device is not well of which nobody else says so.
func (p *patient) unexplained(g gpus.GPU, users []Sufferer) []Finding {
	var found []Finding
	for _, user := range users {
		said, ok := p.says(user)
		if !ok || said.health == corev1.ResourceHealthStatusHealthy {
			continue
		}
		severity, help := gpu.Critical, "it follows the agent within seconds; if it does not, look at the agent's log"
		if said.health == corev1.ResourceHealthStatusUnknown {
			severity, help = gpu.Warning, "kubelet has not heard from the agent for 30 s: look at the agent"
		}
		found = append(found, on(g, Finding{
			Severity: severity.String(), Reason: ReasonPodUnhealthy, Pods: []Sufferer{user}, Help: help,
			Message: "the status of pod " + user.Namespace + "/" + user.Pod + " says " + string(said.health) + ", and no fault of the GPU is known",
		}))
	}
	return found
}

// gone returns the claims on devices that are not published any more.
func (p *patient) gone() []Finding {
	var found []Finding
	for _, r := range p.readings {
		for _, claim := range p.claims {
			for _, result := range claim.Status.Allocation.Devices.Results {
				if result.Driver != r.Driver || result.Pool != r.Pool {
					continue
				}
				if _, err := r.Decode(result); err == nil {
					continue
				}
				found = append(found, Finding{
					Severity: gpu.Critical.String(), Reason: ReasonDeviceGone,
					Pods:    p.sufferers([]gpus.Holder{p.holder(claim, result)}, func(gpus.Holder) bool { return true }),
					Message: "claim " + claim.Namespace + "/" + claim.Name + " holds device " + result.Device + ", which is not published any more",
					Help:    "was the GPU removed, or the NodeConfig changed? End the pods of the claim: they get other devices",
				})
			}
		}
	}
	return found
}

// concerned returns the pods that hold anything of the node's.
func (p *patient) concerned() []Sufferer {
	var list []Sufferer
	for _, g := range p.gpus {
		list = append(list, p.sufferers(g.Holders, func(h gpus.Holder) bool { return len(h.Pods) > 0 })...)
	}
	unserved, _ := p.stranded()
	return append(list, slices.DeleteFunc(unserved, func(s Sufferer) bool { return s.Pod == "" })...)
}

// nodeReady returns the node's condition Ready; nil where it has none, or cannot be seen.
func (p *patient) nodeReady() *corev1.NodeCondition {
	if p.node == nil {
		return nil
	}
	for i, c := range p.node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return &p.node.Status.Conditions[i]
		}
	}
	return nil
}

// agentLogs is what to look at when an agent is in trouble.
func (p *patient) agentLogs() string {
	for _, pod := range p.agents {
		return "kubectl -n " + cluster.SystemNamespace + " logs " + pod.Name
	}
	return "kubectl -n " + cluster.SystemNamespace + " get pods -o wide"
}
