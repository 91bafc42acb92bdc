package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// fail handles a failed step. If another driver was good before, the node rolls back to it; otherwise the node becomes Failed and keeps its state, so
// that a later recovery is observed.
func (v *view) fail(step v1alpha1.UpgradeStep, reason, message string) Decision {
	good := v.Status.LastGoodDriver
	if good == nil || same(good, v.Spec.Driver) {
		d := Decision{Phase: v1alpha1.PhaseFailed, Reason: reason, Message: message, Action: Wait}
		if v.closed() {
			d.Step = step
		}
		return d
	}
	d := v.in(v1alpha1.PhaseDriverInstalling, step, reason, message+"; rolling back to driver "+good.Version).do(RollBack)
	d.Driver, d.MIGMode, d.Attempt = good, v.Spec.MIGMode, v.attempt(reason, message)
	return d
}

// attempt returns the attempt to record for a failure. A step counts once, however often it is evaluated.
func (v *view) attempt(reason, message string) *v1alpha1.Attempt {
	a := &v1alpha1.Attempt{Count: 1, Reason: reason, Message: message}
	a.Last.Time = v.Now
	if v.Spec.Driver != nil {
		a.Digest = v.Spec.Driver.Digest
	}
	if v.otherMIGMode() && !v.otherDriver() {
		a.Digest = MIGAttempt(v.Spec.MIGMode)
	}
	last := v.Status.Attempt
	if last == nil || last.Digest != a.Digest {
		return a
	}
	a.Count = last.Count
	if last.Last.Before(&v.Status.Since) {
		a.Count++
	}
	return a
}

// same reports whether two drivers have the same source and digest, or are both nil.
func same(a, b *v1alpha1.DesiredDriver) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Source == b.Source && a.Digest == b.Digest
}
