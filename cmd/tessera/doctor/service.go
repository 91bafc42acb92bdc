package doctor

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// serviceFindings returns the findings about what keeps the node out of service: taint rules, maintenance, the phase and pending reboots.
func (n *nodeState) serviceFindings() []Finding {
	found := n.taintRuleFindings()
	if n.gpuNode == nil {
		return found
	}
	status := n.gpuNode.Status
	if n.gpuNode.Spec.Maintenance != nil {
		found = append(found, n.maintenanceFinding(*n.gpuNode.Spec.Maintenance))
	} else if f, ok := n.phaseFinding(); ok {
		found = append(found, f)
	}
	// A reboot that a remediation requested is part of the fault's finding.
	requested := slices.ContainsFunc(status.Remediations, func(s v1alpha1.RemediationStatus) bool { return s.Step == v1alpha1.RemediationStepRebootRequested })
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRebootRequired); c != nil && c.Status == metav1.ConditionTrue && !requested {
		found = append(found, Finding{
			Severity: gpu.Critical.String(), Reason: ReasonRebootRequired, Since: &c.LastTransitionTime, Message: "reboot required" + detail(c.Message),
			NextStep: "reboot node " + n.name,
		})
	}
	return found
}

// maintenanceFinding is the finding about a maintenance in progress: Critical when it cannot continue on its own.
func (n *nodeState) maintenanceFinding(m v1alpha1.Maintenance) Finding {
	status := n.gpuNode.Status
	f := Finding{
		Severity: gpu.Warning.String(), Reason: ReasonMaintenance, Since: &m.Since, Pods: n.podsWithDevices(),
		Message:  fmt.Sprintf("the GPUs are out of service for %s%s", m.Operation, detail(m.Reason)),
		Status:   []string{fmt.Sprintf("%s %s: %s%s", status.Phase, status.Step, status.Reason, detail(status.Message))},
		NextStep: "wait; for progress: kubectl describe gpunode " + n.name,
	}
	if status.Phase == v1alpha1.PhaseBlocked || status.Phase == v1alpha1.PhaseFailed {
		f.Severity, f.NextStep = gpu.Critical.String(), "follow the message"
	}
	return f
}

// phaseFinding returns the finding about a node that is neither in service nor in maintenance; false when the node is in service.
func (n *nodeState) phaseFinding() (Finding, bool) {
	status := n.gpuNode.Status
	f := Finding{
		Severity: gpu.Warning.String(), Reason: ReasonNotInService, Since: &status.Since,
		Message: fmt.Sprintf("%s: %s%s", status.Phase, status.Reason, detail(status.Message)), NextStep: "wait: the installer is working on the node",
	}
	switch status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseAbsent, "":
		return Finding{}, false
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed:
		f.Severity, f.NextStep = gpu.Critical.String(), "follow the message"
	case v1alpha1.PhaseRolledBack:
		f.NextStep = "the node is in service with the last working driver; the message has the cause of the failure"
	case v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady, v1alpha1.PhaseAgentReady,
		v1alpha1.PhaseValidating, v1alpha1.PhaseUpgrading:
	}
	return f, true
}

// age returns the time since the moment, such as "3m".
func (n *nodeState) age(since metav1.Time) string {
	return duration.HumanDuration(n.now.Sub(since.Time))
}

// componentFindings returns the findings about scheduler and installer: no ready pod, or no leader. A component without pods is not installed.
func componentFindings(s cluster.State, now time.Time) []Finding {
	var found []Finding
	for _, name := range []string{"tessera-scheduler", "tessera-installer"} {
		var pods []corev1.Pod
		for _, pod := range s.Pods {
			if pod.Namespace == s.System && pod.Labels[cluster.LabelName] == name {
				pods = append(pods, pod)
			}
		}
		if len(pods) == 0 {
			continue
		}
		help := "kubectl -n " + s.System + " logs " + pods[0].Name
		if !slices.ContainsFunc(pods, isReady) {
			f := Finding{Severity: gpu.Critical.String(), Reason: ReasonComponentNotReady, NextStep: help, Message: "no pod of " + name + " is ready"}
			f.Since, f.Message = addNotReadyCause(pods[0], f.Message)
			found = append(found, f)
			continue
		}
		for _, lease := range s.Leases {
			if lease.Name == name && !isHeld(lease, now) {
				found = append(found, Finding{
					Severity: gpu.Critical.String(), Reason: ReasonNoLeader, NextStep: help,
					Message: "no replica of " + name + " is the leader: none of them is active", Since: leaseRenewTime(lease),
				})
			}
		}
	}
	return found
}

// isHeld reports whether a lease has a live holder: one that renewed it within twice the lease's duration.
func isHeld(lease coordinationv1.Lease, now time.Time) bool {
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		return false
	}
	return spec.RenewTime == nil || spec.LeaseDurationSeconds == nil ||
		now.Sub(spec.RenewTime.Time) < 2*time.Duration(*spec.LeaseDurationSeconds)*time.Second
}

// leaseRenewTime returns when the lease was last renewed, nil when it never was.
func leaseRenewTime(lease coordinationv1.Lease) *metav1.Time {
	if lease.Spec.RenewTime == nil {
		return nil
	}
	return &metav1.Time{Time: lease.Spec.RenewTime.Time}
}
