package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/remediation"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// updateGPUNodeStatus writes the decision into the status of the GPUNode, if that differs, and records Events for what changed.
func (r *Reconciler) updateGPUNodeStatus(ctx context.Context, o *nodeObservation, d phase.Decision, gpus *remediation.NodeRemediation) error {
	old := o.GPUNode.Status
	status := *old.DeepCopy()
	status.ObservedGeneration = o.GPUNode.Generation
	moved := status.Phase != d.Phase || status.Step != d.Step
	if moved {
		status.Since = report.Timestamp(o.Now)
	}
	status.Phase, status.Step, status.Reason, status.Message = d.Phase, d.Step, d.Reason, d.Message
	status.DriverRestart = d.DriverRestart
	status.Components, status.Remediations = componentStatuses(o, old.Components), gpus.Statuses()
	for _, c := range append(slices.Clip(d.Conditions), gpus.Conditions()...) {
		setCondition(&status, &o.Observation, c)
	}
	if !slices.ContainsFunc(d.Conditions, func(c phase.Condition) bool { return c.Type == v1alpha1.ConditionReady }) {
		ready := phase.Condition{Type: v1alpha1.ConditionReady, Met: d.Phase == v1alpha1.PhaseReady, Reason: d.Reason, Message: d.Message}
		setCondition(&status, &o.Observation, ready)
	}
	r.Metrics.ObserveNode(o.GPUNode, status, o.Now)
	if equality.Semantic.DeepEqual(old, status) {
		return nil
	}
	if err := r.Cluster.WriteNodeStatus(ctx, o.GPUNode, status); err != nil {
		return err
	}
	if moved || old.Reason != d.Reason {
		r.recordPhaseEvent(o.GPUNode, d)
	}
	gpus.RecordStepEvents(old.Remediations)
	return nil
}

// recordPhaseEvent records the Event for a new phase, step or reason.
func (r *Reconciler) recordPhaseEvent(node *v1alpha1.GPUNode, d phase.Decision) {
	kind := corev1.EventTypeNormal
	switch d.Phase {
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed, v1alpha1.PhaseRolledBack:
		kind = corev1.EventTypeWarning
	case v1alpha1.PhaseAbsent, v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating, v1alpha1.PhaseReady, v1alpha1.PhaseUpgrading:
	}
	r.Events.Event(node, kind, string(d.Phase)+string(d.Step), "ChangePhase", cmp.Or(d.Message, d.Reason))
}

// componentStatuses returns the states of the node's operands. Since is kept while state and digest stay the same.
func componentStatuses(o *nodeObservation, old []v1alpha1.ComponentStatus) []v1alpha1.ComponentStatus {
	agent := componentStatus(phase.ComponentAgent, o.Agent)
	if agent.State == v1alpha1.ComponentReady && !o.AgentAccepted() {
		agent.State, agent.Reason = v1alpha1.ComponentStarting, "AgentNotReady"
		agent.Message = "the agent is not registered with kubelet, has not published ResourceSlices, or finds no driver; see its log"
		if o.AgentRuns() && o.Status.Agent.Message != "" {
			agent.Message = o.Status.Agent.Message
		}
	}
	now := []v1alpha1.ComponentStatus{
		componentStatus(phase.ComponentDriver, o.Driver), componentStatus(phase.ComponentToolkit, o.Toolkit), agent, validatorStatus(o.Validation),
	}
	if o.vgpuDevices.State != phase.PodAbsent {
		now = append(now, vgpuDevicesStatus(o))
	}
	for i := range now {
		now[i].Since = report.Timestamp(o.Now)
		at := slices.IndexFunc(old, func(c v1alpha1.ComponentStatus) bool { return c.Name == now[i].Name })
		if at >= 0 && old[at].State == now[i].State && old[at].Digest == now[i].Digest {
			now[i].Since = old[at].Since
		}
	}
	return now
}

// validatorStatus returns the state of a node's validation.
func validatorStatus(v phase.Validation) v1alpha1.ComponentStatus {
	status := v1alpha1.ComponentStatus{Name: phase.ComponentValidator, State: v1alpha1.ComponentAbsent, Reason: v.Reason, Message: v.Message}
	switch v.State {
	case phase.ValidationRunning:
		status.State = v1alpha1.ComponentStarting
	case phase.ValidationPassed:
		status.State = v1alpha1.ComponentReady
	case phase.ValidationFailed:
		status.State = v1alpha1.ComponentFailed
	case phase.ValidationNone:
	}
	return status
}

// vgpuDevicesStatus returns the state of the vGPU device manager, which reports in a label whether it has applied the configuration of the node.
func vgpuDevicesStatus(o *nodeObservation) v1alpha1.ComponentStatus {
	c := componentStatus(phase.ComponentVGPUDevices, o.vgpuDevices)
	if c.State == v1alpha1.ComponentReady && o.KubeNode != nil && o.KubeNode.Labels[v1alpha1.LabelVGPUConfigState] == "failed" {
		c.State, c.Reason = v1alpha1.ComponentFailed, "VGPUConfigFailed"
		c.Message = fmt.Sprintf("the vGPU configuration of the node (label %s: %q) was not applied; see the log of pod %s. "+
			"Set another configuration, or delete the pod for another attempt", v1alpha1.LabelVGPUConfig, o.KubeNode.Labels[v1alpha1.LabelVGPUConfig], o.vgpuDevices.Name)
	}
	return c
}

// componentStatus returns the state of an operand's pod.
func componentStatus(name string, pod phase.Pod) v1alpha1.ComponentStatus {
	c := v1alpha1.ComponentStatus{Name: name, State: v1alpha1.ComponentAbsent, Digest: pod.Digest, Reason: pod.Reason, Message: pod.Message}
	switch pod.State {
	case phase.PodPending:
		c.State = v1alpha1.ComponentPending
	case phase.PodStarting:
		c.State = v1alpha1.ComponentStarting
	case phase.PodReady, phase.PodSucceeded:
		c.State = v1alpha1.ComponentReady
	case phase.PodFailed:
		c.State = v1alpha1.ComponentFailed
	case phase.PodTerminating:
		c.State, c.Reason = v1alpha1.ComponentPending, "Terminating"
	case phase.PodAbsent:
	}
	return c
}

// setCondition sets a condition of the status. One without a reason gets the node's phase as its reason.
func setCondition(status *v1alpha1.GPUNodeStatus, o *nodestate.Observation, now phase.Condition) {
	c := metav1.Condition{
		Type: now.Type, Status: metav1.ConditionFalse, Reason: cmp.Or(now.Reason, string(status.Phase)), Message: now.Message,
		ObservedGeneration: o.GPUNode.Generation, LastTransitionTime: report.Timestamp(o.Now),
	}
	if now.Met {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, c)
}
