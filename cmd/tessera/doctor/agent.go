package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// agentFindings returns the findings about the node's kubelet, agent and driver.
func (n *nodeState) agentFindings() []Finding {
	var found []Finding
	if c := n.readyCondition(); c != nil && c.Status != corev1.ConditionTrue {
		found = append(found, Finding{
			Severity: gpu.Critical.String(), Reason: ReasonNodeNotReady, Since: &c.LastTransitionTime, Pods: n.podsWithDevices(),
			Message: "the node is not Ready" + detail(c.Message), NextStep: "check the node and its kubelet; the other findings of this node may be outdated",
		})
	}
	found = append(found, n.kubeletFindings()...)
	if n.pods != nil && !n.installerActive() {
		found = append(found, n.agentPodFindings()...)
	}
	if n.gpuNode == nil || n.gpuNode.Status.Agent == nil {
		return found
	}
	found = append(found, n.runtimeFindings()...)
	return append(found, n.agentStatusFindings(*n.gpuNode.Status.Agent)...)
}

// kubeletFindings returns a finding if kubelet starts pods without the GPUs that they request as extended resources. On a node of the installer, the phase has
// this reason.
func (n *nodeState) kubeletFindings() []Finding {
	if n.node == nil || n.gpuNode != nil && n.gpuNode.Status.Phase != "" {
		return nil
	}
	old := phase.OldKubelet(n.node.Status.NodeInfo.KubeletVersion)
	if old == "" {
		return nil
	}
	return []Finding{{
		Severity: gpu.Critical.String(), Reason: ReasonKubeletTooOld, NextStep: "upgrade kubelet", Message: phase.ExplainOldKubelet(old),
	}}
}

// runtimeFindings returns a finding if containers get GPUs of the node without a claim.
func (n *nodeState) runtimeFindings() []Finding {
	hardware := n.gpuNode.Status.Hardware
	if hardware == nil || hardware.GPUs == 0 || hardware.NVIDIARuntime == "" {
		return nil
	}
	return []Finding{{
		Severity: gpu.Warning.String(), Reason: ReasonNVIDIARuntimeDefault,
		Message: fmt.Sprintf("%s runs containers with the handler %s by default: those with NVIDIA_VISIBLE_DEVICES in their image or pod get GPUs without a claim",
			hardware.Runtime, hardware.NVIDIARuntime),
		NextStep: "remove default_runtime_name from containerd's configuration (default_runtime from CRI-O's) and restart the runtime",
	}}
}

// readyCondition returns the Ready condition of the Node object, nil without one.
func (n *nodeState) readyCondition() *corev1.NodeCondition {
	if n.node == nil {
		return nil
	}
	for i, c := range n.node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return &n.node.Status.Conditions[i]
		}
	}
	return nil
}

// agentStatusFindings compares what the agent last reported with the node's boot and its PCI bus.
func (n *nodeState) agentStatusFindings(agent v1alpha1.AgentStatus) []Finding {
	if n.node != nil && agent.BootID != n.node.Status.NodeInfo.BootID {
		return []Finding{{
			Severity: gpu.Critical.String(), Reason: ReasonAgentNotReporting, Message: "no report from the agent since the node booted; faults and GPUs are those of the previous boot",
			NextStep: "check the agent: " + n.agentLogsCommand(),
		}}
	}
	hardware := n.gpuNode.Status.Hardware
	switch {
	case hardware == nil || n.installerActive():
	case agent.DriverVersion == "" && hardware.GPUs > 0 && len(n.gpus) == 0:
		return []Finding{{
			Severity: gpu.Critical.String(), Reason: ReasonDriverMissing, Message: fmt.Sprintf("the node has %s, but no working driver", quantity(int(hardware.GPUs), "GPU")),
			NextStep: "check the driver pod, or nvidia-smi and the kernel log on the node",
		}}
	case agent.GPUs > 0 && agent.GPUs < hardware.GPUs:
		return []Finding{{
			Severity: gpu.Critical.String(), Reason: ReasonGPUsMissing, Message: fmt.Sprintf("the driver lists %d of the %d GPUs on the PCI bus", agent.GPUs, hardware.GPUs),
			NextStep: "check the node's kernel log for NVRM and Xid; reboot the node; if that does not help, replace the GPU",
		}}
	}
	return nil
}

// installerActive reports whether the installer is changing the node, so that a missing agent or driver is expected.
func (n *nodeState) installerActive() bool {
	if n.gpuNode == nil {
		return false
	}
	switch n.gpuNode.Status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseRolledBack, "":
		return n.gpuNode.Spec.Maintenance != nil
	case v1alpha1.PhaseAbsent, v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating, v1alpha1.PhaseUpgrading, v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed:
	}
	return true
}

// agentPodFindings returns a finding when no agent pod is ready. During an upgrade of the agent two pods overlap; one ready pod suffices.
func (n *nodeState) agentPodFindings() []Finding {
	if len(n.agents) == 0 {
		return []Finding{{
			Severity: gpu.Critical.String(), Reason: ReasonAgentMissing, Pods: n.podsWithDevices(), NextStep: n.agentLogsCommand(),
			Message: "no agent on the node: pods with claims can neither start nor terminate, and faults are not detected",
		}}
	}
	if slices.ContainsFunc(n.agents, isReady) {
		return nil
	}
	newest := slices.MaxFunc(n.agents, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	f := Finding{
		Severity: gpu.Critical.String(), Reason: ReasonAgentNotReady, NextStep: n.agentLogsCommand(),
		Message: fmt.Sprintf("the agent is not ready: pod %s is %s", newest.Name, newest.Status.Phase),
	}
	f.Since, f.Message = addNotReadyCause(newest, f.Message)
	return []Finding{f}
}

// addNotReadyCause appends the state of the first waiting container to the message and returns since when the pod is not ready.
func addNotReadyCause(pod corev1.Pod, message string) (*metav1.Time, string) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := status.State.Waiting; w != nil && w.Reason != "" {
			message += fmt.Sprintf(", container %s is waiting: %s%s", status.Name, w.Reason, detail(w.Message))
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

// agentLogsCommand returns the command that shows the agent's log; without an agent pod, the one that lists the pods.
func (n *nodeState) agentLogsCommand() string {
	for _, pod := range n.agents {
		return "kubectl -n " + n.system + " logs " + pod.Name
	}
	return "kubectl -n " + n.system + " get pods -o wide"
}
