package remediation

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// taking takes the GPU out of service: new claims are refused and its pods are evicted. Until a reset is ordered, the GPU can be released unchanged.
var taking = []rule{
	{"halt", func(v *view) bool {
		reason, _ := v.halted()
		return v.free() && reason != ""
	}, func(v *view) Decision {
		if v.needsValidation() {
			return v.keep("the faults persist after a reset: " + v.about())
		}
		return v.close(v.halted())
	}},
	{"over by itself", func(v *view) bool {
		return v.free() && v.AgentReports && v.worst < gpu.Restart && (v.current.Step != v1alpha1.RemediationStepReset || v.current.Attempts == 0)
	}, func(v *view) Decision {
		if v.needsValidation() {
			return v.validating() // it was reset, and another client removed the order
		}
		if v.current.Reason == ReasonRestarting {
			return v.close(ReasonRecovered, "the fault ended with the processes that used the GPU")
		}
		return v.close(ReasonFaultCleared, "the fault ended before the GPU was reset")
	}},
	{"beyond a reset", func(v *view) bool { return v.free() && v.AgentReports && v.worst > gpu.Reset }, func(v *view) Decision {
		return v.requestRepair(ReasonResetInsufficient, "a reset cannot clear the faults: "+v.about())
	}},
	{"hold", func(v *view) bool { return v.at(v1alpha1.RemediationStepHold) && !v.directed() }, func(v *view) Decision {
		spent := v.spent(v1alpha1.RemediationStepHold, ReasonHolding)
		if spent >= agentTimeout {
			return v.close(ReasonHoldFailed, "the GPU could not be taken out of service: "+cmp.Or(v.Obstacle, "spec.remediations could not be written"))
		}
		return v.in(v1alpha1.RemediationStepHold, ReasonHolding, v.current.Message).direct(v1alpha1.OrderHold).until(agentTimeout, spent)
	}},
	{"agent holds", func(v *view) bool {
		a := v.agentStatus()
		return v.at(v1alpha1.RemediationStepHold) && (a == nil || a.State == v1alpha1.RemediationStateFailed)
	}, func(v *view) Decision {
		if a := v.agentStatus(); a != nil {
			return v.close(ReasonHoldFailed, "the agent failed to hold the GPU: "+a.Message)
		}
		spent := v.spent(v1alpha1.RemediationStepHold, ReasonHolding)
		if spent >= agentTimeout {
			return v.close(ReasonAgentNotResponding, fmt.Sprintf(
				"the agent has not confirmed within %s that it refuses new claims; check its pod on the node", agentTimeout))
		}
		return v.in(v1alpha1.RemediationStepHold, ReasonHolding, "waiting for the agent to refuse new claims").until(agentTimeout, spent)
	}},
	{"begin to drain", func(v *view) bool { return v.at(v1alpha1.RemediationStepHold) }, drain},
	{"drain", func(v *view) bool { return v.at(v1alpha1.RemediationStepDrain) && !v.drained() }, drain},
	{"programs have ended", func(v *view) bool { return v.at(v1alpha1.RemediationStepDrain) && v.worst == gpu.Restart }, func(v *view) Decision {
		limit, spent := v.Policy.DrainTimeout+agentTimeout, v.drains()
		if spent >= limit {
			return v.close(ReasonFaultPersists, "the faults persist after the processes on the GPU ended: "+v.about())
		}
		return v.draining(ReasonRestarting, "the processes on the GPU have ended; waiting for the agent to clear the fault").until(limit, spent)
	}},
	{"reset is next", func(v *view) bool { return v.at(v1alpha1.RemediationStepDrain) }, func(v *view) Decision { return v.reset("no claim is prepared on the GPU") }},
}

// drain empties the GPU, or releases it after the drain timeout. No pod is evicted while the agent's status is outdated, a claim is unreadable, or a
// pod must not be evicted.
func drain(v *view) Decision {
	reason := ReasonDraining
	if v.worst == gpu.Restart {
		reason = ReasonRestarting
	}
	if !v.AgentReports && v.at(v1alpha1.RemediationStepDrain) {
		reason = v.current.Reason
	}
	spent := v.drains()
	if spent >= v.Policy.DrainTimeout && v.at(v1alpha1.RemediationStepDrain) {
		return v.close(v.stuck())
	}
	d := v.draining(reason, v.awaited()).until(v.Policy.DrainTimeout, spent)
	if v.AgentReports && !v.Drain.Unreadable && len(v.Drain.Staying) == 0 && len(v.Drain.Holders) > len(v.Drain.Leaving) {
		d.Action, d.After = Evict, evictRetry
	}
	return d
}

// awaited returns a message that names what the drain waits for. Claims stay prepared for a short time after their pods end; that is no error.
func (v *view) awaited() string {
	if a := v.agentStatus(); a != nil && len(v.Drain.Holders) == 0 && !v.Drain.Unreadable {
		return fmt.Sprintf("no pod uses the GPU; claims that kubelet has not unprepared yet: %d", a.PreparedClaims)
	}
	_, message := v.stuck()
	return message
}

// draining returns a decision to wait for the drain. The drain has one start time, even if the remedy changes meanwhile.
func (v *view) draining(reason, message string) Decision {
	d := v.in(v1alpha1.RemediationStepDrain, reason, message)
	if v.at(v1alpha1.RemediationStepDrain) {
		d.Status.Since = v.current.Since
	}
	return d
}

// drains returns how long the drain has taken.
func (v *view) drains() time.Duration {
	if !v.at(v1alpha1.RemediationStepDrain) {
		return 0
	}
	return v.Now.Sub(v.current.Since.Time)
}

// stuck returns the reason and a message that lists what keeps the GPU from being empty.
func (v *view) stuck() (reason, message string) {
	switch a := v.agentStatus(); {
	case len(v.Drain.Blocked) > 0:
		return ReasonDrainBlocked, blocked(v.Drain.Blocked)
	case v.Drain.Unreadable:
		return ReasonDrainBlocked, "a claim on the GPU cannot be read and counts as in use; see the installer's log"
	case len(v.Drain.Holders) > 0:
		return ReasonDrainBlocked, "pods that use the GPU: " + some(v.Drain.Holders)
	case a == nil:
		return ReasonAgentNotResponding, "the agent does not report which claims are prepared on the GPU; check its pod on the node"
	default:
		return ReasonDrainBlocked, fmt.Sprintf("%d claims are still prepared and no pod uses them; see the agent's log", a.PreparedClaims)
	}
}

// blocked returns a message that lists pods that cannot be evicted, with the reasons.
func blocked(pods []phase.BlockedPod) string {
	var list []string
	for _, b := range pods {
		list = append(list, b.Name+" ("+b.Reason+")")
	}
	return "pods that cannot be evicted: " + some(list)
}

// some joins names, up to the maximum for a message.
func some(list []string) string {
	const named = 10
	if len(list) > named {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:named], ", "), len(list)-named)
	}
	return strings.Join(list, ", ")
}
