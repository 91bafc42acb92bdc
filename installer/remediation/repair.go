package remediation

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// awaitingRepair handles GPUs that no reset can repair: they wait for a reboot or an administrator and take no place in the budget. A GPU that was held stays
// held until it passes a validation; otherwise the taints of its faults keep claims away.
var awaitingRepair = []rule{
	{"withdraw request", func(v *view) bool {
		return v.awaitsRepair() && (v.Policy.Mode != v1alpha1.RemediationAct || v.Paused != "")
	}, func(v *view) Decision {
		if v.needsValidation() {
			return v.keep(v.current.Message)
		}
		return v.close(v.halted())
	}},
	{"keep", func(v *view) bool { return v.at(v1alpha1.RemediationStepWaiting) }, func(v *view) Decision {
		switch reason, _ := v.halted(); {
		case reason == "" && v.AgentReports:
			return v.validating()
		case reason == "" || reason == v.current.Reason && v.directed() && v.Order.Step == v1alpha1.OrderHold:
			return v.in(v.current.Step, v.current.Reason, v.current.Message)
		}
		return v.keep("the GPU has not passed a validation")
	}},
	{"hold during request", func(v *view) bool {
		return v.awaitsRepair() && v.Order != nil && (!v.directed() || v.Order.Step != v1alpha1.OrderHold)
	}, func(v *view) Decision {
		return v.in(v.current.Step, v.current.Reason, v.current.Message).direct(v1alpha1.OrderHold)
	}},
	{"faults ended", func(v *view) bool {
		return v.awaitsRepair() && v.AgentReports && !v.persists() && (v.Order == nil || v.Busy == "") && v.mayRevalidate()
	}, func(v *view) Decision {
		if v.Order == nil || len(v.Faults) > 0 && !v.needsValidation() {
			return v.close(ReasonRecovered, "the faults have ended")
		}
		return v.validating()
	}},
	{"reboot is done", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepRebootRequested) && v.rebooted() && v.current.Reason != ReasonRebooted
	}, func(v *view) Decision {
		return v.in(v1alpha1.RemediationStepRebootRequested, ReasonRebooted, "the node rebooted; waiting for the agent to report the GPU's faults")
	}},
	{"reboot did not help", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepRebootRequested) && v.AgentReports && v.persists() && v.rebooted() &&
			(v.seen() || v.spent(v1alpha1.RemediationStepRebootRequested, ReasonRebooted) >= v.Policy.ValidateTimeout)
	}, func(v *view) Decision {
		return v.requestRepair(ReasonRebootInsufficient, "the faults persist after the reboot: "+v.about())
	}},
	{"no reboot helps", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepRebootRequested) && !v.rebooted() && v.AgentReports && (!v.Policy.Reboot || v.worst == gpu.Replace)
	}, func(v *view) Decision {
		return v.requestRepair(v.current.Reason, "no reboot is requested for "+v.about())
	}},
	{"await repair", (*view).awaitsRepair, func(v *view) Decision {
		return v.in(v.current.Step, v.current.Reason, v.current.Message).until(max(revalidateAfter, v.Policy.ValidateTimeout), v.Now.Sub(v.current.Since.Time))
	}},
}

// awaitsRepair reports whether the GPU waits for a reboot or an administrator.
func (v *view) awaitsRepair() bool {
	return v.at(v1alpha1.RemediationStepRebootRequested, v1alpha1.RemediationStepReplace)
}

// needsValidation reports whether the GPU was reset or failed a validation and has passed none since. Only the hold keeps claims away from it.
func (v *view) needsValidation() bool {
	return v.Order != nil && (v.current.Attempts > 0 || v.current.Reason == ReasonValidationFailed)
}

// keep holds a GPU without a passed validation while remediation is halted. It is validated afterwards.
func (v *view) keep(message string) Decision {
	why, halt := v.halted()
	d := v.in(v1alpha1.RemediationStepWaiting, why, message+"; the GPU stays held until remediation resumes: "+halt)
	if v.directed() && v.Order.Step == v1alpha1.OrderHold {
		return d
	}
	return d.direct(v1alpha1.OrderHold)
}

// mayRevalidate reports whether a GPU without faults is to be validated again. One that only failed its validation is retried periodically, because the
// cause may have been elsewhere.
func (v *view) mayRevalidate() bool {
	return v.current.Reason != ReasonValidationFailed || v.rebooted() || v.spent(v.current.Step, ReasonValidationFailed) >= revalidateAfter
}

// seen reports whether a fault of this remediation was observed in the present boot.
func (v *view) seen() bool {
	return slices.ContainsFunc(v.Faults, func(f v1alpha1.GPUFault) bool {
		return f.BootID == v.BootID && slices.Contains(v.current.Faults, namesOf([]v1alpha1.GPUFault{f})[0])
	})
}

// requestRepair requests a reboot of the node, or a replacement if reboots are disabled or a reboot did not help.
func (v *view) requestRepair(reason, message string) Decision {
	d := v.in(v1alpha1.RemediationStepRebootRequested, reason, message+"; reboot the node")
	if !v.Policy.Reboot || v.worst == gpu.Replace || v.rebooted() || v.recurred() {
		d = v.in(v1alpha1.RemediationStepReplace, reason, message+"; replace the GPU, or inspect it and reboot the node")
	}
	d.Status.BootID = v.BootID
	d.Status.Faults = slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.current.Faults, v.names))))
	if !v.begun() {
		return v.attempt(d)
	}
	return d
}

// recurred reports whether a recent remediation of these faults ended by a reboot: its record names another boot than the present one.
func (v *view) recurred() bool {
	return slices.ContainsFunc(v.recentRecoveries(), func(r v1alpha1.RemediationRecord) bool { return r.BootID != "" && r.BootID != v.BootID })
}
