package remediation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Timeouts that no policy sets.
const (
	// agentTimeout limits the wait for a response of the agent, for ended programs to be observed, and for monitoring to leave.
	agentTimeout = 5 * time.Minute
	// resetTimeout limits a reset.
	resetTimeout = 10 * time.Minute
	// evictRetry is the delay before a refused eviction is retried.
	evictRetry = 10 * time.Second
	// backoffBase is the backoff after a failed attempt. It doubles each time, up to backoffMax.
	backoffBase = 10 * time.Minute
	backoffMax  = 6 * time.Hour
	// revalidateAfter is the delay before a GPU without faults that failed its validation is validated again.
	revalidateAfter = time.Hour
	// recurrenceWindow is how long a returning fault counts as the same.
	recurrenceWindow = 24 * time.Hour
)

// view is the input of rules: an observation and values derived from it.
type view struct {
	*Observed
	// current is the status without completed remediations.
	current v1alpha1.RemediationStatus
	// worst is the strongest remedy that a reported fault needs.
	worst gpu.Remedy
	// names are the names of the reported faults.
	names []string
}

func viewOf(o *Observed) *view {
	v := &view{Observed: o, worst: gpu.Wait, names: namesOf(o.Faults)}
	for _, f := range o.Faults {
		v.worst = max(v.worst, remedyOf(f))
	}
	if o.Status != nil {
		v.current = *o.Status
	}
	if last := v.record(); v.current.Step == v1alpha1.RemediationStepRestore && o.Order == nil && last != nil {
		v.current = v1alpha1.RemediationStatus{Attempts: v.current.Attempts}
		if last.Outcome == v1alpha1.OutcomeRecovered {
			v.current.Attempts = 0
		}
	}
	return v
}

// remedyOf returns the remedy of a fault. An unknown value means Replace.
func remedyOf(f v1alpha1.GPUFault) gpu.Remedy {
	var r gpu.Remedy
	if r.UnmarshalText([]byte(f.Remedy)) != nil {
		return gpu.Replace
	}
	return r
}

// severityOf returns the severity of a fault. An unknown value means Critical.
func severityOf(f v1alpha1.GPUFault) gpu.Severity {
	var s gpu.Severity
	if s.UnmarshalText([]byte(f.Severity)) != nil {
		return gpu.Critical
	}
	return s
}

// namesOf returns the names of faults, deduplicated and sorted.
func namesOf(faults []v1alpha1.GPUFault) []string {
	var names []string
	for _, f := range faults {
		if names = append(names, f.Signal); f.Signal == string(gpu.SignalXID) {
			names[len(names)-1] = fmt.Sprintf("XID %d", f.XID)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// begun reports whether a remediation is in progress.
func (v *view) begun() bool { return v.current.ID != "" }

func (v *view) at(steps ...v1alpha1.RemediationStep) bool {
	return v.begun() && slices.Contains(steps, v.current.Step)
}

// ordered reports whether the order of the present attempt is beyond Hold.
func (v *view) ordered() bool { return v.directed() && v.Order.Step != v1alpha1.OrderHold }

// directed reports whether the order belongs to the present attempt.
func (v *view) directed() bool { return v.Order != nil && v.Order.ID == v.current.ID }

// free reports whether the GPU is held and no reset has been ordered: it can be released unchanged.
func (v *view) free() bool {
	return v.at(v1alpha1.RemediationStepHold, v1alpha1.RemediationStepDrain) || v.at(v1alpha1.RemediationStepReset) && !v.ordered()
}

// agentStatus returns the agent's status of the present order, or nil if there is none.
func (v *view) agentStatus() *v1alpha1.AgentRemediation {
	if !v.AgentReports {
		return nil
	}
	return v.Agent
}

// drained reports whether the next action may proceed. For a reset the agent's count of prepared claims decides and not the list of pods: a pod that
// was recreated for a claim allocated here is refused and holds nothing. Pods that are being deleted can still run without a prepared claim: kubelet before
// 1.37 unprepares a claim when a pod that never used it ends (https://github.com/kubernetes/kubernetes/pull/140212).
func (v *view) drained() bool {
	if v.Drain.Unreadable {
		return false
	}
	if v.worst == gpu.Restart && !v.at(v1alpha1.RemediationStepReset) {
		return len(v.Drain.Holders) == 0
	}
	a := v.agentStatus()
	return a != nil && a.PreparedClaims == 0 && len(v.Drain.Leaving) == 0
}

// validationExists reports whether objects of a validation exist.
func (v *view) validationExists() bool { return v.Validation.State != "" || v.Validation.Leftover }

// rebooted reports whether the node has rebooted since a reboot or replacement was requested.
func (v *view) rebooted() bool { return v.current.BootID != "" && v.current.BootID != v.BootID }

// persists reports whether a fault of this remediation is still reported.
func (v *view) persists() bool {
	return slices.ContainsFunc(v.Faults, func(f v1alpha1.GPUFault) bool {
		return len(v.current.Faults) == 0 || slices.Contains(v.current.Faults, namesOf([]v1alpha1.GPUFault{f})[0])
	})
}

// halted returns why no attempt may start, or "" if one may.
func (v *view) halted() (reason, message string) {
	switch {
	case v.Policy.Mode != v1alpha1.RemediationAct:
		return ReasonOff, fmt.Sprintf("remediation.mode is %s", cmp.Or(v.Policy.Mode, v1alpha1.RemediationOff))
	case v.Paused != "":
		return ReasonPaused, "remediation is paused by an annotation: " + v.Paused
	case v.Busy != "":
		return ReasonNodeBusy, v.Busy
	}
	return "", ""
}

// spent returns how long the GPU has been in this step for this reason.
func (v *view) spent(step v1alpha1.RemediationStep, reason string) time.Duration {
	if v.current.Step != step || v.current.Reason != reason {
		return 0
	}
	return v.Now.Sub(v.current.Since.Time)
}

// in returns a decision to wait in a step. The faults of a remediation stay those with which it started.
func (v *view) in(step v1alpha1.RemediationStep, reason, message string) Decision {
	s := v.current
	if s.Step != step || s.Reason != reason {
		s.Since = metav1.NewTime(v.Now).Rfc3339Copy()
	}
	s.GPU, s.Step, s.Reason, s.Message = v.GPU, step, reason, message
	if !v.begun() || len(s.Faults) == 0 {
		s.Faults = v.names
	}
	for _, f := range v.Faults {
		s.UUID = cmp.Or(s.UUID, f.UUID)
	}
	return Decision{Status: &s, Action: Wait}
}

// do returns a copy of the decision with an action that needs no parameters.
func (d Decision) do(a Action) Decision { d.Action = a; return d }

// direct returns a copy of the decision that writes an order for the agent.
func (d Decision) direct(o v1alpha1.RemediationOrder) Decision {
	d.Action = Direct
	d.Order = v1alpha1.Remediation{ID: d.Status.ID, GPU: d.Status.GPU, Step: o, Reason: purpose(d.Status)}
	if d.Status.Began != nil {
		d.Order.Since = *d.Status.Began
	}
	return d
}

// purpose returns the reason of the order, which appears in errors of refused claims.
func purpose(s *v1alpha1.RemediationStatus) string {
	return fmt.Sprintf("%s has faults (%s) and is being remediated", s.GPU, strings.Join(s.Faults, ", "))
}

// until returns a copy of the decision that is reevaluated when the limit ends.
func (d Decision) until(limit, spent time.Duration) Decision {
	if limit > spent {
		d.After = limit - spent
	}
	return d
}

// attempt returns a copy of the decision with the ID of a new attempt.
func (v *view) attempt(d Decision) Decision {
	const longest = 40
	now := metav1.NewTime(v.Now).Rfc3339Copy()
	d.Status.ID = strings.Join([]string{
		v.GPU[:min(longest, len(v.GPU))], strconv.FormatInt(v.Now.UnixMilli(), 36), strconv.Itoa(int(d.Status.Attempts)),
	}, "-")
	if d.Status.Began == nil {
		d.Status.Began = &now
	}
	return d
}
