package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// updateGPUNodeStatus writes into the status where the node stands, when that differs from what the status says.
func (r *nodeReconciler) updateGPUNodeStatus(ctx context.Context, s *nodeObservation, d phase.Decision) error {
	old := s.GPUNode.Status
	status := *old.DeepCopy()
	status.ObservedGeneration = s.GPUNode.Generation
	moved := status.Phase != d.Phase || status.Step != d.Step
	if moved {
		status.Since = Timestamp(s.Now)
	}
	status.Phase, status.Step, status.Reason, status.Message = d.Phase, d.Step, d.Reason, d.Message
	status.Components, status.Remedies = componentStatuses(s, old.Components), s.remedies()
	setNodeConditions(&status, s, d)
	r.metrics.ObserveNode(s.GPUNode, status, s.Now)
	if equality.Semantic.DeepEqual(old, status) {
		return nil
	}
	if err := r.WriteNodeStatus(ctx, s.GPUNode, status); err != nil {
		return err
	}
	if moved || old.Reason != d.Reason {
		r.recordPhaseEvent(s.GPUNode, d)
	}
	r.recordStepEvents(s, old.Remedies)
	return nil
}

// Timestamp is a time as the API keeps it.
func Timestamp(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }

// recordPhaseEvent tells of a node's move in an event.
func (r *nodeReconciler) recordPhaseEvent(node *v1alpha1.GPUNode, d phase.Decision) {
	kind := corev1.EventTypeNormal
	switch d.Phase {
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed, v1alpha1.PhaseRolledBack:
		kind = corev1.EventTypeWarning
	case v1alpha1.PhaseAbsent, v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating, v1alpha1.PhaseReady, v1alpha1.PhaseUpgrading:
	}
	reason, text := string(d.Phase), d.Message
	if d.Step != "" {
		reason += string(d.Step)
	}
	if text == "" {
		text = d.Reason
	}
	r.recorder.Eventf(node, nil, kind, reason, "Move", "%s", note(text))
}

// componentStatuses are the operands on the node as they are now.
func componentStatuses(s *nodeObservation, old []v1alpha1.ComponentStatus) []v1alpha1.ComponentStatus {
	validator := v1alpha1.ComponentStatus{Name: phase.ComponentValidator, State: v1alpha1.ComponentAbsent}
	switch s.Validation.State {
	case phase.ValidationRunning:
		validator.State = v1alpha1.ComponentStarting
	case phase.ValidationPassed:
		validator.State = v1alpha1.ComponentReady
	case phase.ValidationFailed:
		validator.State = v1alpha1.ComponentFailed
	case phase.ValidationNone:
	}
	validator.Reason, validator.Message = s.Validation.Reason, s.Validation.Message
	agent := componentStatus(phase.ComponentAgent, s.Agent)
	if agent.State == v1alpha1.ComponentReady && !s.AgentAccepted() {
		agent.State, agent.Reason = v1alpha1.ComponentStarting, "NotAccepted"
		agent.Message = "kubelet does not know the agent, the API server has not taken its ResourceSlices, or it finds no driver: see its log"
	}
	now := []v1alpha1.ComponentStatus{
		componentStatus(phase.ComponentDriver, s.Driver), componentStatus(phase.ComponentToolkit, s.Toolkit), agent, validator,
	}
	for i := range now {
		now[i].Since = Timestamp(s.Now)
		at := slices.IndexFunc(old, func(c v1alpha1.ComponentStatus) bool { return c.Name == now[i].Name })
		if at >= 0 && old[at].State == now[i].State && old[at].Digest == now[i].Digest {
			now[i].Since = old[at].Since
		}
	}
	return now
}

// componentStatus is a pod as the status knows it.
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

// setNodeConditions writes the named validations and Ready into the status.
func setNodeConditions(status *v1alpha1.GPUNodeStatus, s *nodeObservation, d phase.Decision) {
	for _, c := range append(slices.Clip(d.Conditions), remediation.Conditions(s.AgentRuns(), s.Faults(), status.Remedies)...) {
		setCondition(status, s, c)
	}
	if !slices.ContainsFunc(d.Conditions, func(c phase.Condition) bool { return c.Type == v1alpha1.ConditionReady }) {
		setCondition(status, s, phase.Condition{Type: v1alpha1.ConditionReady, Met: d.Phase == v1alpha1.PhaseReady, Reason: d.Reason, Message: d.Message})
	}
}

// setCondition writes a condition into the status; one without a reason has the node's phase for one.
func setCondition(status *v1alpha1.GPUNodeStatus, s *nodeObservation, now phase.Condition) {
	c := metav1.Condition{
		Type: now.Type, Status: metav1.ConditionFalse, Reason: cmp.Or(now.Reason, string(status.Phase)), Message: now.Message,
		ObservedGeneration: s.GPUNode.Generation, LastTransitionTime: Timestamp(s.Now),
	}
	if now.Met {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, c)
}
