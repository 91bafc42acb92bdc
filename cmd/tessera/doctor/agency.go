package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// agency returns what is wrong with the node's agent, driver and kubelet.
func (p *patient) agency() []Finding {
	var found []Finding
	if c := p.nodeReady(); c != nil && c.Status != corev1.ConditionTrue {
		found = append(found, Finding{
			Severity: gpu.Critical.String(), Reason: ReasonNodeNotReady, Since: &c.LastTransitionTime, Pods: p.concerned(),
			Message: "the node is not Ready" + told(c.Message), Help: "look at the node and its kubelet; what else stands here is what was known before",
		})
	}
	if p.pods != nil && !p.underway() {
		found = append(found, p.agentPods()...)
	}
	if p.gpuNode == nil || p.gpuNode.Status.Agent == nil {
		return found
	}
	return append(found, p.spoken(*p.gpuNode.Status.Agent)...)
}

// spoken returns what is wrong by what the agent says, and whether it is of now.
func (p *patient) spoken(agent v1alpha1.AgentStatus) []Finding {
	if p.node != nil && agent.BootID != p.node.Status.NodeInfo.BootID {
		return []Finding{{
			Severity: gpu.Critical.String(), Reason: ReasonAgentSilent, Message: "the agent has not spoken since the node was booted: faults and GPUs are as they were before",
			Help: "look at the agent: " + p.agentLogs(),
		}}
	}
	hardware := p.gpuNode.Status.Hardware
	switch {
	case hardware == nil || p.underway():
	case agent.DriverVersion == "" && hardware.GPUs > 0 && len(p.gpus) == 0:
		return []Finding{{
			Severity: gpu.Critical.String(), Reason: ReasonDriverMissing, Message: fmt.Sprintf("the node has %s and no driver that answers", count(int(hardware.GPUs), "GPU")),
			Help: "look at the driver's pod, or on the node at nvidia-smi and the kernel's log",
		}}
	case agent.GPUs > 0 && agent.GPUs < hardware.GPUs:
		return []Finding{{
			Severity: gpu.Critical.String(), Reason: ReasonGPUsMissing, Message: fmt.Sprintf("the driver sees %d of the %d GPUs on the bus", agent.GPUs, hardware.GPUs),
			Help: "look into the kernel's log on the node for NVRM and Xid; reboot the node, then replace the GPU",
		}}
	}
	return nil
}

// underway reports whether the installer is at work on the node, so that parts of it are not there by intention.
func (p *patient) underway() bool {
	if p.gpuNode == nil {
		return false
	}
	switch p.gpuNode.Status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseRolledBack, "":
		return p.gpuNode.Spec.Maintenance != nil
	case v1alpha1.PhaseAbsent, v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating, v1alpha1.PhaseUpgrading, v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed:
	}
	return true
}

// agentPods returns what is wrong with the agent's pods. Two overlap while the agent is upgraded: one that serves is enough.
func (p *patient) agentPods() []Finding {
	if len(p.agents) == 0 {
		return []Finding{{
			Severity: gpu.Critical.String(), Reason: ReasonAgentMissing, Pods: p.concerned(),
			Message: "no agent runs on the node: pods with claims do not start there and cannot end, and faults are not noticed",
			Help:    p.agentLogs(),
		}}
	}
	if slices.ContainsFunc(p.agents, ready) {
		return nil
	}
	newest := slices.MaxFunc(p.agents, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	f := Finding{
		Severity: gpu.Critical.String(), Reason: ReasonAgentNotReady, Help: p.agentLogs(),
		Message: fmt.Sprintf("the agent is not ready: pod %s is %s", newest.Name, newest.Status.Phase),
	}
	f.Since, f.Message = trouble(newest, f.Message)
	return []Finding{f}
}

// trouble adds to the message what keeps a pod from being ready, and since when.
func trouble(pod corev1.Pod, message string) (*metav1.Time, string) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := status.State.Waiting; w != nil && w.Reason != "" {
			message += fmt.Sprintf(", container %s waits: %s%s", status.Name, w.Reason, told(w.Message))
			break
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && !c.LastTransitionTime.IsZero() {
			return &c.LastTransitionTime, message
		}
	}
	return nil, message
}
