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

// service returns what keeps the node's GPUs out of service.
func (p *patient) service() []Finding {
	found := p.ruled()
	if p.gpuNode == nil {
		return found
	}
	status := p.gpuNode.Status
	if m := p.gpuNode.Spec.Maintenance; m != nil {
		f := Finding{
			Severity: gpu.Warning.String(), Reason: ReasonMaintenance, Since: &m.Since, Pods: p.concerned(),
			Message: fmt.Sprintf("the GPUs are out of service for %s%s", m.Operation, told(m.Reason)),
			Doing:   []string{fmt.Sprintf("%s %s: %s%s", status.Phase, status.Step, status.Reason, told(status.Message))},
			Help:    "wait; kubectl describe gpunode " + p.name + " says what for",
		}
		if stuck(status) {
			f.Severity, f.Help = gpu.Critical.String(), "the message says what to do"
		}
		found = append(found, f)
	} else if f, is := p.phase(); is {
		found = append(found, f)
	}
	asked := slices.ContainsFunc(status.Remedies, func(s v1alpha1.RemedyStatus) bool { return s.Step == v1alpha1.RemedyRebootRequested })
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRebootRequired); c != nil && c.Status == metav1.ConditionTrue && !asked {
		found = append(found, Finding{
			Severity: gpu.Critical.String(), Reason: ReasonRebootRequired, Since: &c.LastTransitionTime, Message: "a reboot is asked for" + told(c.Message),
			Help: "reboot node " + p.name,
		})
	}
	return found
}

// stuck reports whether the installer needs somebody.
func stuck(status v1alpha1.GPUNodeStatus) bool {
	return status.Phase == v1alpha1.PhaseBlocked || status.Phase == v1alpha1.PhaseFailed
}

// phase returns the finding about a node that is not in service, and not in maintenance.
func (p *patient) phase() (Finding, bool) {
	status := p.gpuNode.Status
	f := Finding{
		Severity: gpu.Warning.String(), Reason: ReasonNotInService, Since: &status.Since,
		Message: fmt.Sprintf("%s: %s%s", status.Phase, status.Reason, told(status.Message)), Help: "wait: the installer is at work",
	}
	switch status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseAbsent, "":
		return Finding{}, false
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed:
		f.Severity, f.Help = gpu.Critical.String(), "the message says what to do"
	case v1alpha1.PhaseRolledBack:
		f.Help = "it is in service with the last good driver; the message says what failed"
	case v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady, v1alpha1.PhaseAgentReady,
		v1alpha1.PhaseValidating, v1alpha1.PhaseUpgrading:
	}
	return f, true
}

// age says for how long something is so.
func (p *patient) age(since metav1.Time) string { return duration.HumanDuration(p.now.Sub(since.Time)) }

// components returns what is wrong with the parts of Tessera that belong to no node: scheduler and installer.
func components(s cluster.State, now time.Time) []Finding {
	var found []Finding
	for _, name := range []string{"tessera-scheduler", "tessera-installer"} {
		var pods []corev1.Pod
		for _, pod := range s.Pods {
			if pod.Namespace == cluster.SystemNamespace && pod.Labels[labelName] == name {
				pods = append(pods, pod)
			}
		}
		if len(pods) == 0 {
			continue
		}
		help := "kubectl -n " + cluster.SystemNamespace + " logs " + pods[0].Name
		if !slices.ContainsFunc(pods, ready) {
			f := Finding{Severity: gpu.Critical.String(), Reason: ReasonComponentNotReady, Help: help, Message: "no pod of " + name + " is ready"}
			f.Since, f.Message = trouble(pods[0], f.Message)
			found = append(found, f)
			continue
		}
		for _, lease := range s.Leases {
			if lease.Name == name && !led(lease, now) {
				found = append(found, Finding{
					Severity: gpu.Critical.String(), Reason: ReasonNobodyLeads, Help: help,
					Message: "no replica of " + name + " leads: it decides nothing", Since: renewed(lease),
				})
			}
		}
	}
	return found
}

// led reports whether a lease is held. A holder that has missed twice its time is gone.
func led(lease coordinationv1.Lease, now time.Time) bool {
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		return false
	}
	return spec.RenewTime == nil || spec.LeaseDurationSeconds == nil ||
		now.Sub(spec.RenewTime.Time) < 2*time.Duration(*spec.LeaseDurationSeconds)*time.Second
}

func renewed(lease coordinationv1.Lease) *metav1.Time {
	if lease.Spec.RenewTime == nil {
		return nil
	}
	return &metav1.Time{Time: lease.Spec.RenewTime.Time}
}
