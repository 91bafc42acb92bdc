package remediation

import (
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// proof validates the GPU with a claim before it is released.
var proof = []rule{
	{"order validate", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepValidate) && (!v.directed() || v.Order.Step != v1alpha1.OrderValidate)
	}, (*view).validating},
	{"fault comes back", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepValidate) && v.AgentReports && v.worst > gpu.Wait
	}, func(v *view) Decision {
		return v.fail(ReasonFaultReturned, "a fault was reported again during the validation: "+v.about())
	}},
	{"agent does not report", func(v *view) bool { return v.at(v1alpha1.RemediationStepValidate) && !v.AgentReports }, func(v *view) Decision {
		limit, spent := max(v.Policy.ValidateTimeout, agentTimeout), v.spent(v1alpha1.RemediationStepValidate, ReasonValidating)
		if spent >= limit {
			return v.end(ReasonAgentNotResponding, "the agent does not report the health of the GPU; check its pod on the node")
		}
		return v.in(v1alpha1.RemediationStepValidate, ReasonValidating, "waiting for the agent, which does not report the health of the GPU").until(limit, spent)
	}},
	{"validate", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepValidate) && v.Policy.Validates && v.Validation.State != phase.ValidationPassed
	}, validate},
	{"recovered", func(v *view) bool { return v.at(v1alpha1.RemediationStepValidate) }, func(v *view) Decision {
		return v.close(ReasonRecovered, "the GPU is healthy again")
	}},
}

// validating orders the agent to admit the installer's validation to the GPU.
func (v *view) validating() Decision {
	return v.in(v1alpha1.RemediationStepValidate, ReasonValidating, "a claim validates the GPU").direct(v1alpha1.OrderValidate)
}

func validate(v *view) Decision {
	limit, spent := v.Policy.ValidateTimeout, v.spent(v1alpha1.RemediationStepValidate, ReasonValidating)
	d := v.in(v1alpha1.RemediationStepValidate, ReasonValidating, "a claim validates the GPU").until(limit, spent)
	p := v.Validation
	switch {
	case p.State == phase.ValidationFailed:
		return v.fail(ReasonValidationFailed, fmt.Sprintf("the validation of the GPU failed: %s: %s", p.Reason, p.Message))
	case spent >= limit && v.Started:
		return v.fail(ReasonValidationFailed, fmt.Sprintf("the validation of the GPU has not ended within %s: %s", limit, p.Message))
	case spent >= limit:
		return v.unproven()
	case p.State == phase.ValidationNone && p.Leftover:
		return d.do(EndValidate)
	case p.State == phase.ValidationNone, p.Begun:
		return d.do(Validate)
	}
	return d
}

// unproven releases a GPU whose validation could not run. It stays held if a reboot or replacement was requested in this boot, because it may have
// failed a validation before, or if it owes a validation on a busy node.
func (v *view) unproven() Decision {
	why := "the pod that validates the GPU was not scheduled: " + v.Validation.Message
	if v.Obstacle != "" {
		why = "the claim that validates the GPU could not be created: " + v.Obstacle
	}
	if v.current.BootID != "" && !v.rebooted() {
		return v.requestRepair(ReasonValidationFailed, why)
	}
	if v.Busy != "" && v.needsValidation() {
		return v.keep(why) // the activity on the node may be the cause
	}
	return v.close(ReasonNotValidated, "the fault has ended, and "+why)
}
