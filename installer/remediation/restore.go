package remediation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// closing finishes completed attempts before all other rules, and restores a lost status from the order.
var closing = []rule{
	{"end validation", func(v *view) bool { return v.proofStands() && !v.at(v1alpha1.RemediationStepValidate) && !v.forgot() }, func(v *view) Decision {
		return Decision{Status: v.Status, Action: EndValidate}
	}},
	{"release", func(v *view) bool { return v.at(v1alpha1.RemediationStepRestore) }, func(v *view) Decision {
		return v.close(v.stands.Reason, v.stands.Message)
	}},
	{"adopt", (*view).forgot, func(v *view) Decision {
		v.stands = v1alpha1.RemediationStatus{ID: v.Order.ID, Began: &v.Order.Since}
		switch v.Order.Step {
		case v1alpha1.OrderReset:
			v.stands.Attempts = 1
			return v.in(v1alpha1.RemediationStepReset, ReasonResetOrdered, "the reset is ordered; waiting for the agent to start it")
		case v1alpha1.OrderValidate:
			v.stands.Attempts = 1
			return v.in(v1alpha1.RemediationStepValidate, ReasonValidating, "waiting for a claim that validates the GPU")
		case v1alpha1.OrderHold:
		}
		return v.in(v1alpha1.RemediationStepHold, ReasonHolding, "waiting for the agent to refuse new claims")
	}},
	{"order is gone", func(v *view) bool {
		return v.Order == nil && v.at(v1alpha1.RemediationStepWaiting, v1alpha1.RemediationStepDrain, v1alpha1.RemediationStepReset, v1alpha1.RemediationStepValidate)
	}, func(v *view) Decision {
		return v.close(ReasonOrderRemoved, "the GPU was removed from spec.remediations by another client")
	}},
}

// forgot reports whether an order exists that the status lacks.
func (v *view) forgot() bool { return v.Order != nil && !v.begun() }

// close releases the GPU and ends the attempt with a reason.
func (v *view) close(reason, message string) Decision {
	d := v.in(v1alpha1.RemediationStepRestore, reason, message)
	if v.proofStands() {
		return d.do(EndValidate)
	}
	if v.record() == nil {
		s := d.Status
		d.Record = &v1alpha1.RemediationRecord{
			ID: s.ID, GPU: s.GPU, UUID: s.UUID, Faults: append([]string{}, s.Faults...), Outcome: outcome(reason), Reason: reason, Message: message,
			Attempts: s.Attempts, BootID: s.BootID, Began: s.Since, Ended: metav1.NewTime(v.Now).Rfc3339Copy(),
		}
		if s.Began != nil {
			d.Record.Began = *s.Began
		}
	}
	return d.do(Release)
}

// outcome returns the outcome for a release reason.
func outcome(reason string) v1alpha1.RemediationOutcome {
	switch reason {
	case ReasonRecovered, ReasonNotValidated:
		return v1alpha1.OutcomeRecovered
	case ReasonHoldFailed, ReasonAgentNotResponding, ReasonDrainBlocked, ReasonMonitorsNotRemoved, ReasonFaultPersists, ReasonGPUBusy:
		return v1alpha1.OutcomeFailed
	}
	return v1alpha1.OutcomeStopped
}

// record returns the record of the present attempt, or nil if there is none yet.
func (v *view) record() *v1alpha1.RemediationRecord {
	i := slices.IndexFunc(v.History, func(r v1alpha1.RemediationRecord) bool { return v.stands.ID != "" && r.ID == v.stands.ID })
	if i < 0 {
		return nil
	}
	return &v.History[i]
}

// tries returns the number of resets for these faults: in this attempt, and recent successful ones.
func (v *view) tries() int32 {
	n := v.stands.Attempts
	for _, r := range v.late() {
		if r.Attempts > 0 {
			n++
		}
	}
	return n
}

// late returns recent remediations that repaired the same faults.
func (v *view) late() []v1alpha1.RemediationRecord {
	about := slices.Concat(v.stands.Faults, v.names)
	var late []v1alpha1.RemediationRecord
	for _, r := range v.History {
		shares := slices.ContainsFunc(r.Faults, func(name string) bool { return slices.Contains(about, name) })
		if shares && r.Outcome == v1alpha1.OutcomeRecovered && v.Now.Sub(r.Ended.Time) < memory {
			late = append(late, r)
		}
	}
	return late
}

// rests returns the remaining backoff after failed attempts since the last recovery, and the message of the last one.
func (v *view) rests() (left time.Duration, why string) {
	var last *v1alpha1.RemediationRecord
	pause := rest
	for i, r := range v.History {
		if r.Outcome == v1alpha1.OutcomeRecovered {
			break
		}
		if r.Outcome != v1alpha1.OutcomeFailed && r.Reason != ReasonNodeBusy {
			continue // a person stopped it, or there was nothing left to do
		}
		if last == nil {
			last = &v.History[i]
		} else {
			pause = min(2*pause, longestRest)
		}
	}
	if last == nil {
		return 0, ""
	}
	return pause - v.Now.Sub(last.Ended.Time), last.Message
}

// about joins the names of a GPU's faults for messages.
func (v *view) about() string {
	return cmp.Or(strings.Join(v.names, ", "), strings.Join(v.stands.Faults, ", "), "no fault")
}
