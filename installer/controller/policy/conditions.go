package policy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/report"
)

// policyConditions are the conditions of a ClusterPolicy or NVIDIADriver.
type policyConditions struct{ ready, progressing, degraded, paused condition }

// condition is a condition without its type and times.
type condition struct {
	is              bool
	reason, message string
}

// derivePolicyConditions returns the conditions for a group of nodes. Ready means that the spec is in force on all of them: it is False from the edit that
// changes a driver until the last node has it, and does not change with each node in between.
func derivePolicyConditions(s nodeSummary, rollout *v1alpha1.RolloutStatus, operand string, faults []fault) policyConditions {
	v := policyConditions{
		progressing: condition{reason: "Settled", message: "no node is changing"},
		degraded:    condition{reason: "AsExpected", message: "there are no faults"},
		paused:      condition{reason: "NotPaused", message: "no rollout is paused"},
	}
	moving := int(s.counts.Total-s.counts.Ready-s.counts.Blocked-s.counts.Failed) + s.outdated
	if moving > 0 {
		v.progressing = condition{true, "NodesProgressing", fmt.Sprintf("%d of %d nodes are Ready", s.counts.Ready, s.counts.Total)}
	}
	if rollout != nil && rollout.Stage == v1alpha1.RolloutPaused {
		v.paused = condition{true, "Paused", rollout.Reason}
		v.progressing = condition{reason: "Paused", message: rollout.Reason}
	}
	switch {
	case len(faults) > 0:
		v.degraded = condition{true, faults[0].reason, faults[0].message}
	case len(s.stuck) > 0:
		v.degraded = condition{true, "NodesStuck", joinFirst(s.stuck)}
	}
	v.ready = readyCondition(s, v, operand)
	return v
}

// readyCondition returns the condition Ready; if it is False, with the first cause.
func readyCondition(s nodeSummary, v policyConditions, operand string) condition {
	switch {
	case v.degraded.is:
		return condition{false, v.degraded.reason, v.degraded.message}
	case s.counts.Total == 0:
		return condition{false, "NoGPUNodes", "no GPU node was found that the nodeSelector selects; see kubectl get gpunodes"}
	case v.paused.is:
		return condition{false, "RolloutPaused", v.paused.message}
	case s.outdated > 0:
		return condition{false, "Rollout", "nodes are waiting for the rollout; see status.rollout"}
	case s.counts.Ready < s.counts.Total:
		return condition{false, "NodesNotReady", fmt.Sprintf("%d of %d nodes are Ready; see kubectl get gpunodes", s.counts.Ready, s.counts.Total)}
	case operand != "":
		return condition{false, "OperandNotAvailable", operand}
	}
	return condition{true, "Ready", fmt.Sprintf("all %d nodes are Ready", s.counts.Total)}
}

// joinFirst joins the first elements of a list and the number of the others.
func joinFirst(list []string) string {
	const few = 5
	if len(list) > few {
		return strings.Join(list[:few], ", ") + fmt.Sprintf(" and %d more; see kubectl get gpunodes", len(list)-few)
	}
	return strings.Join(list, ", ")
}

// writeReduced sets the condition Reduced, which exists only where something is reduced. Its reason is SchedulerOff if the policy enables tessera-scheduler.
func (r *Reconciler) writeReduced(conditions *[]metav1.Condition, p *pass) {
	if r.Reduced == "" {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionReduced)
		return
	}
	reason := "APIServerLacksKinds"
	if p.SchedulerOff() {
		reason = "SchedulerOff"
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionReduced, Status: metav1.ConditionTrue, Reason: reason, Message: r.Reduced, ObservedGeneration: p.Policy.Generation,
		LastTransitionTime: report.Timestamp(p.now),
	})
}

// write sets the conditions of a status.
func (v policyConditions) write(conditions *[]metav1.Condition, generation int64, p *pass) {
	for _, c := range []struct {
		kind string
		condition
	}{
		{v1alpha1.ConditionReady, v.ready}, {v1alpha1.ConditionProgressing, v.progressing}, {v1alpha1.ConditionDegraded, v.degraded},
		{v1alpha1.ConditionRolloutPaused, v.paused},
	} {
		status := metav1.ConditionFalse
		if c.is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: c.kind, Status: status, Reason: c.reason, Message: c.message, ObservedGeneration: generation, LastTransitionTime: report.Timestamp(p.now),
		})
	}
}
