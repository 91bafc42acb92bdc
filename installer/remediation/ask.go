package remediation

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// asking handles GPUs that no reset can repair: they wait for a reboot or an administrator and take no place in the budget. A GPU that was held stays
// held until it passes a validation; otherwise the taints of its faults keep claims away.
var asking = []rule{
	{"withdraw request", func(v *view) bool {
		return v.asks() && (v.Policy.Mode != v1alpha1.RemediationAct || v.Paused != "")
	}, func(v *view) Decision {
		if v.owesProof() {
			return v.keep(v.stands.Message)
		}
		return v.close(v.halted())
	}},
	{"keep", func(v *view) bool { return v.at(v1alpha1.RemediationStepWaiting) }, func(v *view) Decision {
		switch reason, _ := v.halted(); {
		case reason == "" && v.Speaks:
			return v.validating()
		case reason == "" || reason == v.stands.Reason && v.directed() && v.Order.Step == v1alpha1.OrderHold:
			return v.in(v.stands.Step, v.stands.Reason, v.stands.Message)
		}
		return v.keep("the GPU has not passed a validation")
	}},
	{"hold during request", func(v *view) bool {
		return v.asks() && v.Order != nil && (!v.directed() || v.Order.Step != v1alpha1.OrderHold)
	}, func(v *view) Decision {
		return v.in(v.stands.Step, v.stands.Reason, v.stands.Message).direct(v1alpha1.OrderHold)
	}},
	{"faults ended", func(v *view) bool {
		return v.asks() && v.Speaks && !v.persists() && (v.Order == nil || v.Busy == "") && v.mayPass()
	}, func(v *view) Decision {
		if v.Order == nil || len(v.Faults) > 0 && !v.owesProof() {
			return v.close(ReasonRecovered, "the faults have ended")
		}
		return v.validating()
	}},
	{"reboot is done", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepRebootRequested) && v.rebooted() && v.stands.Reason != ReasonRebooted
	}, func(v *view) Decision {
		return v.in(v1alpha1.RemediationStepRebootRequested, ReasonRebooted, "the node rebooted; waiting for the agent to report the GPU's faults")
	}},
	{"reboot did not help", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepRebootRequested) && v.Speaks && v.persists() && v.rebooted() &&
			(v.seen() || v.spent(v1alpha1.RemediationStepRebootRequested, ReasonRebooted) >= v.Policy.ValidateTimeout)
	}, func(v *view) Decision {
		return v.ask(ReasonRebootInsufficient, "the faults persist after the reboot: "+v.about())
	}},
	{"no reboot helps", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepRebootRequested) && !v.rebooted() && v.Speaks && (!v.Policy.Reboot || v.worst == gpu.Replace)
	}, func(v *view) Decision { return v.ask(v.stands.Reason, "no reboot is requested for "+v.about()) }},
	{"await repair", (*view).asks, func(v *view) Decision {
		return v.in(v.stands.Step, v.stands.Reason, v.stands.Message).until(max(proveAgain, v.Policy.ValidateTimeout), v.Now.Sub(v.stands.Since.Time))
	}},
}

// asks reports whether the GPU waits for a reboot or an administrator.
func (v *view) asks() bool {
	return v.at(v1alpha1.RemediationStepRebootRequested, v1alpha1.RemediationStepReplace)
}

// owesProof reports whether the GPU was reset or failed a validation and has passed none since. Only the hold keeps claims away from it.
func (v *view) owesProof() bool {
	return v.Order != nil && (v.stands.Attempts > 0 || v.stands.Reason == ReasonValidationFailed)
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

// mayPass reports whether a GPU without faults is to be validated again. One that only failed its validation is retried periodically, because the
// cause may have been elsewhere.
func (v *view) mayPass() bool {
	return v.stands.Reason != ReasonValidationFailed || v.rebooted() || v.spent(v.stands.Step, ReasonValidationFailed) >= proveAgain
}

// seen reports whether a fault of this remediation was observed in the present boot.
func (v *view) seen() bool {
	return slices.ContainsFunc(v.Faults, func(f v1alpha1.GPUFault) bool {
		return f.BootID == v.BootID && slices.Contains(v.stands.Faults, namesOf([]v1alpha1.GPUFault{f})[0])
	})
}

// ask requests a reboot of the node, or a replacement if reboots are disabled or a reboot did not help.
func (v *view) ask(reason, message string) Decision {
	d := v.in(v1alpha1.RemediationStepRebootRequested, reason, message+"; reboot the node")
	if !v.Policy.Reboot || v.worst == gpu.Replace || v.rebooted() || v.cameBack() {
		d = v.in(v1alpha1.RemediationStepReplace, reason, message+"; replace the GPU, or inspect it and reboot the node")
	}
	d.Status.BootID = v.BootID
	d.Status.Faults = slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.stands.Faults, v.names))))
	if !v.begun() {
		return v.attempt(d)
	}
	return d
}

// cameBack reports whether a recent remediation of these faults ended by a reboot: its record names another boot than the present one.
func (v *view) cameBack() bool {
	return slices.ContainsFunc(v.late(), func(r v1alpha1.RemediationRecord) bool { return r.BootID != "" && r.BootID != v.BootID })
}
