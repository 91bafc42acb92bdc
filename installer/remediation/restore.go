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
	{"end validation", func(v *view) bool {
		return v.validationExists() && !v.at(v1alpha1.RemediationStepValidate) && !v.statusLost()
	}, func(v *view) Decision {
		return Decision{Status: v.Status, Action: EndValidate}
	}},
	{"release", func(v *view) bool { return v.at(v1alpha1.RemediationStepRestore) }, func(v *view) Decision {
		return v.close(v.current.Reason, v.current.Message)
	}},
	{"adopt", (*view).statusLost, func(v *view) Decision {
		v.current = v1alpha1.RemediationStatus{ID: v.Order.ID, Began: &v.Order.Since}
		switch v.Order.Step {
		case v1alpha1.OrderReset:
			v.current.Attempts = 1
			return v.in(v1alpha1.RemediationStepReset, ReasonResetOrdered, "the reset is ordered; waiting for the agent to start it")
		case v1alpha1.OrderValidate:
			v.current.Attempts = 1
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

// statusLost reports whether an order exists that the status lacks.
func (v *view) statusLost() bool { return v.Order != nil && !v.begun() }

// close releases the GPU and ends the attempt with a reason.
func (v *view) close(reason, message string) Decision {
	d := v.in(v1alpha1.RemediationStepRestore, reason, message)
	if v.validationExists() {
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
	i := slices.IndexFunc(v.History, func(r v1alpha1.RemediationRecord) bool { return v.current.ID != "" && r.ID == v.current.ID })
	if i < 0 {
		return nil
	}
	return &v.History[i]
}

// resetCount returns the number of resets for these faults: in this attempt, and recent successful ones.
func (v *view) resetCount() int32 {
	n := v.current.Attempts
	for _, r := range v.recentRecoveries() {
		if r.Attempts > 0 {
			n++
		}
	}
	return n
}

// recentRecoveries returns recent remediations that repaired the same faults.
func (v *view) recentRecoveries() []v1alpha1.RemediationRecord {
	about := slices.Concat(v.current.Faults, v.names)
	var recent []v1alpha1.RemediationRecord
	for _, r := range v.History {
		shares := slices.ContainsFunc(r.Faults, func(name string) bool { return slices.Contains(about, name) })
		if shares && r.Outcome == v1alpha1.OutcomeRecovered && v.Now.Sub(r.Ended.Time) < recurrenceWindow {
			recent = append(recent, r)
		}
	}
	return recent
}

// backoff returns the remaining backoff after failed attempts since the last recovery, and the message of the last one.
func (v *view) backoff() (left time.Duration, why string) {
	var last *v1alpha1.RemediationRecord
	pause := backoffBase
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
			pause = min(2*pause, backoffMax)
		}
	}
	if last == nil {
		return 0, ""
	}
	return pause - v.Now.Sub(last.Ended.Time), last.Message
}

// about joins the names of a GPU's faults for messages.
func (v *view) about() string {
	return cmp.Or(strings.Join(v.names, ", "), strings.Join(v.current.Faults, ", "), "no fault")
}
