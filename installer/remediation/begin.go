package remediation

import (
	"fmt"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// beginning starts a remediation if permitted, or reports what it would do.
var beginning = []rule{
	{"unknown", func(v *view) bool { return !v.AgentReports }, func(v *view) Decision { return Decision{Status: v.Status, Action: Wait} }},
	{"nothing to do", func(v *view) bool {
		return v.worst < gpu.Restart || v.Policy.Mode != v1alpha1.RemediationAct && v.Policy.Mode != v1alpha1.RemediationSuggest
	}, func(*view) Decision { return Decision{Action: Wait} }},
	{"suggest", func(v *view) bool { return v.Policy.Mode == v1alpha1.RemediationSuggest }, func(v *view) Decision {
		return v.in(v1alpha1.RemediationStepSuggested, ReasonSuggested, v.suggestion())
	}},
	{"may not begin", func(v *view) bool {
		reason, _ := v.halted()
		return reason != ""
	}, func(v *view) Decision {
		reason, message := v.halted()
		return v.in(v1alpha1.RemediationStepWaiting, reason, message)
	}},
	{"request repair at once", func(v *view) bool { return v.exhausted() }, func(v *view) Decision {
		if v.worst > gpu.Reset {
			return v.requestRepair(ReasonResetInsufficient, "a reset cannot clear the faults: "+v.about())
		}
		return v.requestRepair(ReasonFaultReturned, fmt.Sprintf("%s: the GPU was reset %d times for these faults within %s",
			v.about(), v.resetCount(), recurrenceWindow))
	}},
	{"rest", func(v *view) bool { left, _ := v.backoff(); return left > 0 }, func(v *view) Decision {
		left, why := v.backoff()
		d := v.in(v1alpha1.RemediationStepWaiting, ReasonBackoff, fmt.Sprintf("the next attempt starts at %s; the last one failed: %s", v.Now.Add(left).UTC().Format(time.RFC3339), why))
		d.After = left
		return d
	}},
	{"pods stay", func(v *view) bool { return len(v.Drain.Staying) > 0 }, func(v *view) Decision {
		d := v.in(v1alpha1.RemediationStepWaiting, ReasonDrainBlocked, "the GPU stays in service because it cannot be drained: "+blocked(v.Drain.Staying))
		d.After = agentTimeout
		return d
	}},
	{"wait for pods", func(v *view) bool {
		return len(v.Drain.Waited) > 0 && (v.Policy.WaitTimeout == 0 || v.faultAge() < v.Policy.WaitTimeout)
	}, func(v *view) Decision {
		return v.in(v1alpha1.RemediationStepWaiting, ReasonWaitingForPods, "waiting for these pods before the GPU is taken out of service: "+some(v.Drain.Waited)).
			until(v.Policy.WaitTimeout, v.faultAge())
	}},
	{"budget", func(v *view) bool { return !v.Granted }, func(v *view) Decision {
		return v.in(v1alpha1.RemediationStepWaiting, ReasonBudgetExhausted, "remediation.maxParallel GPUs are already out of service; remediation starts when one of them is released")
	}},
	{"begin", func(*view) bool { return true }, func(v *view) Decision {
		d := v.attempt(v.in(v1alpha1.RemediationStepHold, ReasonHolding, "taking the GPU out of service"))
		return d.direct(v1alpha1.OrderHold)
	}},
}

// exhausted reports whether no reset can repair the GPU, or the permitted number of resets is used.
func (v *view) exhausted() bool {
	return v.worst > gpu.Reset || v.worst == gpu.Reset && v.resetCount() >= v.Policy.Attempts
}

// faultAge returns the age of the oldest fault of the GPU.
func (v *view) faultAge() time.Duration {
	var longest time.Duration
	for _, f := range v.Faults {
		longest = max(longest, v.Now.Sub(f.Since.Time))
	}
	return longest
}

// suggestion describes what would be done and its cost.
func (v *view) suggestion() string {
	cost := "no pod uses it"
	if n := len(v.Drain.Holders); n > 0 {
		cost = fmt.Sprintf("%d pods would be evicted: %s", n, some(v.Drain.Holders))
	}
	switch {
	case v.worst == gpu.Restart:
		return fmt.Sprintf("%s: with remediation.mode Act, the processes on it would be ended; %s", v.about(), cost)
	case !v.exhausted():
		return fmt.Sprintf("%s: with remediation.mode Act, the GPU would be drained, reset and validated; %s", v.about(), cost)
	case v.worst == gpu.Replace || !v.Policy.Reboot:
		return fmt.Sprintf("%s: a reset cannot clear the faults; replace the GPU, or inspect it and reboot the node", v.about())
	default:
		return fmt.Sprintf("%s: a reset cannot clear the faults; with remediation.mode Act, a reboot of the node would be requested", v.about())
	}
}
