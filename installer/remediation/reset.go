package remediation

import (
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// resetting orders the reset from the agent when no process has the GPU open. An ordered reset is always finished, even if the policy changes.
var resetting = []rule{
	{"make room", func(v *view) bool {
		return v.at(v1alpha1.RemediationStepReset) && !v.ordered() && (v.Monitored || !v.drained())
	}, func(v *view) Decision {
		spent := v.spent(v1alpha1.RemediationStepReset, ReasonRemovingMonitors)
		if v.current.Reason == ReasonResetOrdered {
			v.current.Attempts-- // the order was about to be written and was not
		}
		switch {
		case spent < agentTimeout:
			return v.in(v1alpha1.RemediationStepReset, ReasonRemovingMonitors, "waiting for monitoring pods, which open the GPU, to end").until(agentTimeout, spent)
		case v.Monitored:
			return v.end(ReasonMonitorsNotRemoved, fmt.Sprintf("monitoring pods have not left the node within %s and keep the GPU open", agentTimeout))
		default:
			return v.end(v.stuck())
		}
	}},
	{"order reset", func(v *view) bool { return v.at(v1alpha1.RemediationStepReset) && !v.ordered() }, func(v *view) Decision {
		d := v.in(v1alpha1.RemediationStepReset, ReasonResetOrdered, "the reset is ordered; waiting for the agent to start it")
		if v.current.Reason != ReasonResetOrdered {
			d.Status.Attempts++
		}
		return d.direct(v1alpha1.OrderReset)
	}},
	{"reset failed", func(v *view) bool {
		a := v.agentStatus()
		return v.at(v1alpha1.RemediationStepReset) && a != nil && a.State == v1alpha1.RemediationStateFailed
	}, func(v *view) Decision { return v.fail(ReasonResetFailed, "the reset failed: "+v.Agent.Message) }},
	{"resets", func(v *view) bool {
		a := v.agentStatus()
		return v.at(v1alpha1.RemediationStepReset) && (a == nil || a.State != v1alpha1.RemediationStateReset)
	}, resets},
	{"fault is over", func(v *view) bool { return v.at(v1alpha1.RemediationStepReset) && len(v.Faults) > 0 }, func(v *view) Decision {
		limit, spent := v.Policy.ValidateTimeout, v.spent(v1alpha1.RemediationStepReset, ReasonCheckingFaults)
		switch {
		case v.worst <= gpu.Wait && spent >= limit:
			return v.validating() // another reset or a reboot does not end a fault that ends by itself
		case v.worst > gpu.Reset || spent >= limit:
			return v.fail(ReasonFaultPersists, "the faults persist after the reset: "+v.about())
		}
		return v.in(v1alpha1.RemediationStepReset, ReasonCheckingFaults, "the GPU was reset; waiting for the agent to clear the fault").until(limit, spent)
	}},
	{"validate is next", func(v *view) bool { return v.at(v1alpha1.RemediationStepReset) }, (*view).validating},
}

// resets waits for the agent, which has the order. The time until the reset starts and the time of the reset have separate limits.
func resets(v *view) Decision {
	a, reason, message := v.agentStatus(), v.current.Reason, "the agent does not report the progress of the reset; check its pod on the node"
	if reason == ReasonRemovingMonitors {
		reason = ReasonResetOrdered
	}
	if a != nil {
		message = "waiting for the agent to start the reset"
		if a.State == v1alpha1.RemediationStateResetting {
			reason, message = ReasonResetting, "the agent is resetting the GPU"
		}
		if a.Message != "" {
			message += ": " + a.Message
		}
	}
	spent := v.spent(v1alpha1.RemediationStepReset, reason)
	switch {
	case spent < resetTimeout:
		return v.in(v1alpha1.RemediationStepReset, reason, message).until(resetTimeout, spent)
	case a == nil:
		return v.end(ReasonAgentNotResponding, fmt.Sprintf("the agent has not reported the end of the reset within %s; see the agent's log", resetTimeout))
	case reason != ReasonResetOrdered:
		return v.giveUp(ReasonResetTimeout, fmt.Sprintf("the reset has not ended within %s; see the agent's log", resetTimeout))
	}
	v.current.Attempts-- // the reset never started
	if a.Message != "" {
		return v.end(ReasonGPUBusy, fmt.Sprintf("the reset could not start within %s: %s", resetTimeout, a.Message))
	}
	return v.end(ReasonAgentNotResponding, fmt.Sprintf("the agent has not started the reset within %s; see the agent's log", resetTimeout))
}

// reset starts an attempt to reset the GPU. Monitoring leaves the node first.
func (v *view) reset(message string) Decision {
	return v.in(v1alpha1.RemediationStepReset, ReasonRemovingMonitors, message+"; the GPU is reset when monitoring pods have left the node")
}

// fail ends an unsuccessful attempt: it is repeated, or an administrator is needed.
func (v *view) fail(reason, message string) Decision {
	why, _ := v.halted()
	if why == "" && v.current.BootID == "" && v.worst <= gpu.Reset && v.resetCount() < v.Policy.Attempts {
		return v.attempt(v.reset(message))
	}
	return v.giveUp(reason, message)
}

// giveUp requests a reboot or replacement, or holds the GPU while remediation is halted.
func (v *view) giveUp(reason, message string) Decision {
	if why, _ := v.halted(); why != "" {
		return v.keep(message)
	}
	return v.requestRepair(reason, message)
}

// end aborts an attempt. A GPU that was not reset is released and backs off; one that was reset stays held, and a reboot or replacement is requested.
func (v *view) end(reason, message string) Decision {
	if v.needsValidation() {
		return v.giveUp(reason, message)
	}
	return v.close(reason, message)
}
