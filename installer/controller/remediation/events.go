package remediation

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// RecordStepEvents records an Event for each GPU whose step differs from the one in old, the former status.remediations.
func (n *NodeRemediation) RecordStepEvents(old []v1alpha1.RemediationStatus) {
	for _, now := range n.Statuses() {
		before := v1alpha1.RemediationStatus{}
		if found := findCopy(old, func(o v1alpha1.RemediationStatus) bool { return o.GPU == now.GPU }); found != nil {
			before = *found
		}
		if before.Step == now.Step && before.ID == now.ID {
			continue
		}
		if reason, kind := stepEvent(before, now); reason != "" {
			n.recordGPUEvent(kind, reason, now.GPU+": "+now.Message)
		}
	}
}

// stepEvent returns reason and type of the Event for a step. Waiting, draining and restoring have none.
func stepEvent(before, now v1alpha1.RemediationStatus) (reason, kind string) {
	switch now.Step {
	case v1alpha1.RemediationStepSuggested:
		return "RemediationSuggested", corev1.EventTypeNormal
	case v1alpha1.RemediationStepHold:
		return "RemediationStarted", corev1.EventTypeNormal
	case v1alpha1.RemediationStepReset:
		if before.Step == v1alpha1.RemediationStepDrain || before.Step == v1alpha1.RemediationStepHold {
			return "GPUDrained", corev1.EventTypeNormal
		}
	case v1alpha1.RemediationStepValidate:
		if before.Step == v1alpha1.RemediationStepReset {
			return "GPUReset", corev1.EventTypeNormal
		}
	case v1alpha1.RemediationStepRebootRequested:
		return "RebootRequired", corev1.EventTypeWarning
	case v1alpha1.RemediationStepReplace:
		return "ReplacementRequired", corev1.EventTypeWarning
	case v1alpha1.RemediationStepWaiting, v1alpha1.RemediationStepDrain, v1alpha1.RemediationStepRestore:
	}
	return "", ""
}

// recordEndEvent records the Event for the end of a remediation.
func (n *NodeRemediation) recordEndEvent(record v1alpha1.RemediationRecord) {
	reason, kind := "RemediationStopped", corev1.EventTypeNormal
	switch record.Outcome {
	case v1alpha1.OutcomeRecovered:
		reason = "GPURecovered"
	case v1alpha1.OutcomeFailed:
		reason, kind = "RemediationFailed", corev1.EventTypeWarning
	case v1alpha1.OutcomeStopped:
	}
	n.recordGPUEvent(kind, reason, record.GPU+": "+record.Message)
}

// recordGPUEvent records an Event on the GPUNode and on the Node.
func (n *NodeRemediation) recordGPUEvent(kind, reason, text string) {
	n.Events.Event(n.node.GPUNode, kind, reason, "Remediate", text)
	if n.node.KubeNode != nil {
		n.Events.Event(n.node.KubeNode, kind, reason, "Remediate", text)
	}
}
