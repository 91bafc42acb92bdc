package phase

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// proof validates the node with claims, once per boot and driver.
var proof = []rule{
	{"validate", func(v *view) bool { return !v.validated() && v.proves() && v.Validation.State != ValidationPassed }, validate},
	{"record", func(v *view) bool { return !v.validated() || !v.recorded() }, func(v *view) Decision {
		d := v.validating("the validation passed; recording the installed driver").do(Record)
		d.Attempt = v.failedBefore()
		return d
	}},
	{"end validation", func(v *view) bool { return v.validationExists() }, func(v *view) Decision {
		return v.validating("deleting the objects of the validation").do(EndValidate)
	}},
}

// recorded reports whether the status has the good driver and no outdated attempt.
func (v *view) recorded() bool {
	return same(v.Status.LastGoodDriver, v.Spec.Driver) && (v.Status.Attempt == nil) == (v.failedBefore() == nil)
}

func validate(v *view) Decision {
	limit, spent := v.Wanted.Upgrade.ValidateTimeout, v.Now.Sub(v.Validation.Since)
	switch {
	case (v.Validation.State == ValidationNone || v.Validation.Begun) && v.Validation.Leftover:
		return v.validating("deleting the objects of an older validation").do(EndValidate)
	case v.Validation.State == ValidationNone && (v.Obstacle == "" || v.proving() < limit), v.Validation.Begun && spent < limit:
		return v.validating("creating the claims that validate the node").do(Validate)
	case v.Validation.State == ValidationRunning && spent < limit:
		return v.validating("claims validate the node").until(limit, spent)
	}
	return v.unproven(limit, spent)
}

// unproven handles a validation that failed, timed out or could not be started.
func (v *view) unproven(limit, spent time.Duration) Decision {
	reason, message := ReasonValidationFailed, "the validation failed: "+v.Validation.Reason+": "+v.Validation.Message
	if v.Validation.State == ValidationRunning {
		reason, message = ReasonValidationTimeout, fmt.Sprintf("the validation has not ended within %s: %s", limit, cmp.Or(v.Validation.Message, v.Obstacle))
	}
	if v.Validation.State == ValidationNone {
		reason, message = ReasonValidationTimeout, fmt.Sprintf("the claims that validate the node could not be created within %s: %s", limit, v.Obstacle)
	}
	d := v.fail(v1alpha1.StepValidate, reason, message)
	switch {
	case d.Action != Wait:
		return d
	case v.Validation.State == ValidationNone:
		return d.do(Validate)
	}
	// No driver to roll back to: the validation is repeated, and the node stays Failed meanwhile.
	if spent >= limit+validateAgain {
		return d.do(EndValidate)
	}
	return d.until(limit+validateAgain, spent)
}

// proving returns how long the node has been waiting for the start of a validation.
func (v *view) proving() time.Duration {
	if v.Status.Phase == v1alpha1.PhaseValidating {
		return v.Now.Sub(v.Status.Since.Time)
	}
	return v.spent(v1alpha1.StepValidate)
}

// validating returns a decision to wait for the validation. A node that failed it stays Failed until it passes.
func (v *view) validating(message string) Decision {
	d := v.in(v1alpha1.PhaseValidating, v1alpha1.StepValidate, ReasonValidating, message)
	failed := v.Status.Reason == ReasonValidationFailed || v.Status.Reason == ReasonValidationTimeout
	if v.Status.Phase == v1alpha1.PhaseFailed && failed && v.Validation.State != ValidationPassed {
		d.Phase, d.Reason, d.Message = v.Status.Phase, v.Status.Reason, v.Status.Message
	}
	return d
}
