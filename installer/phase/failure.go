package phase

import (
	"fmt"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// fail handles a failed step. If another driver was good before and supports the running kernel, the node rolls back to it; otherwise the node becomes
// Failed and keeps its state, so that a later recovery is observed.
func (v *view) fail(step v1alpha1.UpgradeStep, reason, message string) Decision {
	good := v.Status.LastGoodDriver
	if good == nil || same(good, v.Spec.Driver) || !v.supports(good) {
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

// supports reports whether a driver may run with the kernel and the operating system that the discovery reported in this boot. A driver without a kernel
// compiles its modules.
func (v *view) supports(d *v1alpha1.DesiredDriver) bool {
	if !v.surveyed() {
		return true
	}
	h := v.Status.Hardware
	return (d.OS == "" || d.OS == h.OS) && (d.Kernel == "" || d.Kernel == h.Kernel)
}

// driverAdvice returns what to do about a driver whose image is missing, as a suffix for a message.
func (v *view) driverAdvice() string {
	if v.Driver.Reason != ReasonImageNotFound || v.Spec.Driver == nil {
		return ""
	}
	if kernel := v.Spec.Driver.Kernel; kernel != "" {
		return fmt.Sprintf("; there is no precompiled driver for kernel %s: push the image, boot a kernel for which there is one, or set usePrecompiled: false "+
			"and a full version, so that the modules are compiled on the node", kernel)
	}
	return fmt.Sprintf("; there is no driver %s for %s: push the image, or set a version that has one", v.Spec.Driver.Version, v.Spec.Driver.OS)
}

// same reports whether two drivers have the same source and digest, or are both nil.
func same(a, b *v1alpha1.DesiredDriver) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Source == b.Source && a.Digest == b.Digest
}
