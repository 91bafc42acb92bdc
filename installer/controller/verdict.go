package controller

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// policyConditions is what conditions say of a ClusterPolicy or NVIDIADriver.
type policyConditions struct{ ready, progressing, degraded, paused condition }

// condition is a condition before it is written.
type condition struct {
	is              bool
	reason, message string
}

// derivePolicyConditions judges a group of nodes. Ready means that what the spec says is in force everywhere: it is False from the edit that changes a driver to
// the end of the last node, and does not come and go with each node in between.
func derivePolicyConditions(s nodeSummary, rollout *v1alpha1.RolloutStatus, operand string, faults []fault) policyConditions {
	v := policyConditions{
		progressing: condition{reason: "Settled", message: "nothing is on its way"},
		degraded:    condition{reason: "AsExpected", message: "nothing is wrong"},
		paused:      condition{reason: "NotPaused", message: "no rollout is paused"},
	}
	moving := int(s.counts.Total-s.counts.Ready-s.counts.Blocked-s.counts.Failed) + s.outdated
	if moving > 0 {
		v.progressing = condition{true, "NodesOnTheirWay", fmt.Sprintf("%d of %d nodes are Ready", s.counts.Ready, s.counts.Total)}
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

// readyCondition says whether everything is as the spec wants it, and if not, the first thing that is not.
func readyCondition(s nodeSummary, v policyConditions, operand string) condition {
	switch {
	case v.degraded.is:
		return condition{false, v.degraded.reason, v.degraded.message}
	case s.counts.Total == 0:
		return condition{false, "NoGPUNodes", "no GPU node has been found that is chosen"}
	case v.paused.is:
		return condition{false, "RolloutPaused", v.paused.message}
	case s.outdated > 0:
		return condition{false, "Rollout", "nodes wait for what the spec wants: see status.rollout"}
	case s.counts.Ready < s.counts.Total:
		return condition{false, "NodesNotReady", fmt.Sprintf("%d of %d nodes are Ready: see kubectl get gpunodes", s.counts.Ready, s.counts.Total)}
	case operand != "":
		return condition{false, "OperandNotAvailable", operand}
	}
	return condition{true, "Ready", fmt.Sprintf("all %d nodes are Ready", s.counts.Total)}
}

// joinFirst names the first few.
func joinFirst(list []string) string {
	const few = 5
	if len(list) > few {
		return strings.Join(list[:few], ", ") + fmt.Sprintf(" and %d more: see kubectl get gpunodes", len(list)-few)
	}
	return strings.Join(list, ", ")
}

// write puts the verdict into conditions.
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
			Type: c.kind, Status: status, Reason: c.reason, Message: c.message, ObservedGeneration: generation, LastTransitionTime: Timestamp(p.now),
		})
	}
}
