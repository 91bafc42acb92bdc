package phase

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// restore returns the GPUs to service and reports the outcome.
var restore = []rule{
	{"leave", func(v *view) bool { return v.entered }, func(v *view) Decision {
		return v.restoring("ending the maintenance; the agent accepts claims again").do(Leave)
	}},
	{"agent answers", func(v *view) bool {
		return v.Tainted && v.agent != "" && v.Status.Agent != nil && v.Status.Agent.Maintenance != ""
	}, func(v *view) Decision {
		return v.restoring("waiting for the agent to accept claims")
	}},
	{"untaint", func(v *view) bool { return v.Tainted }, func(v *view) Decision {
		return v.restoring("removing the device taint; claims can be allocated on the node").do(Untaint)
	}},
	{"make room for a reset", func(v *view) bool {
		return v.Node.Labels.Maintenance == "" && v.Node.Labels.Ready == v.resets() && (v.resets() || v.served())
	}, func(v *view) Decision {
		// The node stays in service: its other GPUs are in use.
		l := v.Node.Labels
		l.Ready = !v.resets()
		return inService(v).place(l)
	}},
	{"unmark", func(v *view) bool {
		return v.Node.Labels.Maintenance != "" || !v.Node.Labels.Ready && !v.resets()
	}, func(v *view) Decision {
		l := v.Node.Labels
		l.Maintenance, l.Ready = "", !v.resets()
		d := v.restoring("marking the node ready for pods and monitoring")
		return d.place(l)
	}},
	{"in service", func(*view) bool { return true }, inService},
}

// MonitoringReturns returns the labels that bring monitoring back to a node in service after a reset or a change of the MIG mode. It returns false if no
// change is needed.
func MonitoringReturns(o Observed) (Labels, bool) {
	v := viewOf(&o)
	l := v.Node.Labels
	if l.Maintenance != "" || l.Ready || v.closed() || v.resets() || !v.served() {
		return l, false
	}
	l.Ready = true
	return l, true
}

func (v *view) restoring(message string) Decision {
	return v.in(v1alpha1.PhaseValidating, v1alpha1.StepRestore, ReasonRestoring, message)
}

// resets reports whether a GPU of the node is to be reset or to change its MIG mode for a claim. Monitoring opens all GPUs and is removed from the
// node meanwhile.
func (v *view) resets() bool {
	return v.AgentReports() && v.Status.Agent.PausesMonitoring() ||
		slices.ContainsFunc(v.Status.Remediations, func(r v1alpha1.RemediationStatus) bool { return r.Step == v1alpha1.RemediationStepReset }) ||
		slices.ContainsFunc(v.Spec.Remediations, func(r v1alpha1.Remediation) bool { return r.Step == v1alpha1.OrderReset })
}

// served reports whether the status reports the node in service.
func (v *view) served() bool {
	return v.Status.Phase == v1alpha1.PhaseReady || v.Status.Phase == inService(v).Phase && v.Status.Step == ""
}

// inService returns the phase of a node in service: Ready, or the outcome of a failed attempt that still counts.
func inService(v *view) Decision {
	d := Decision{Phase: v1alpha1.PhaseReady, Reason: ReasonInService, Message: "the GPUs are available to claims", Action: Wait}
	if v.agent != "" && !v.AgentAccepted() {
		d = d.until(agentGrace, v.agentAway())
	}
	a := v.failedBefore()
	if a == nil {
		return d
	}
	d.Reason, d.Message = a.Reason, a.Message
	switch {
	case a.Undisturbed():
		d.Phase = v1alpha1.PhaseBlocked
	case a.Reason == ReasonMIGModeFailed:
		d.Phase = v1alpha1.PhaseFailed
	default:
		d.Phase = v1alpha1.PhaseRolledBack
	}
	return d
}
