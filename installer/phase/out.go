package phase

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// outOfService drains the GPUs before the driver or MIG mode changes. No rule matches if no agent is placed or no driver is loaded, so that no pod is
// evicted without need.
var outOfService = []rule{
	{"reset under way", func(v *view) bool { gpu, _ := v.underReset(); return v.mustLeave() && gpu != "" }, func(v *view) Decision {
		gpu, spent := v.underReset()
		step := v1alpha1.StepTaint
		if v.closed() && v.Status.Step != "" {
			step = v.Status.Step
		}
		return v.leaving(step, ReasonResetting, "GPU "+gpu+" is being reset; the node is taken out of service when the reset has ended").until(resetTimeout, spent)
	}},
	{"end validation before leaving", func(v *view) bool {
		return (v.mustLeave() || !v.Wanted.Managed) && v.validationExists()
	}, func(v *view) Decision {
		return v.leaving(v1alpha1.StepTaint, ReasonEnteringMaintenance, "ending the validation").do(EndValidate)
	}},
	{"taint", func(v *view) bool { return v.mustLeave() && !v.Tainted }, func(v *view) Decision {
		d := v.leaving(v1alpha1.StepTaint, ReasonEnteringMaintenance, "tainting the devices; no new claim is allocated on the node").do(Taint)
		d.Maintenance = v.maintenance()
		return d
	}},
	{"mark", func(v *view) bool { return v.mustLeave() && v.Node.Labels.Maintenance != string(v.operation()) }, func(v *view) Decision {
		l := v.Node.Labels
		l.Maintenance, l.Ready = string(v.operation()), false
		return v.leaving(v1alpha1.StepTaint, ReasonEnteringMaintenance, "removing monitoring pods; the scheduler places no pods on the node").place(l)
	}},
	{"enter", func(v *view) bool { return v.mustLeave() && !v.entered }, func(v *view) Decision {
		d := v.leaving(v1alpha1.StepRefuse, ReasonWaitingForAgent, "starting the maintenance; the agent refuses new claims").do(Enter)
		d.Maintenance = v.maintenance()
		return d
	}},
	{"agent refuses", func(v *view) bool {
		return v.mustLeave() && !v.refusing() && !v.deserted()
	}, func(v *view) Decision {
		const message = "the agent has not confirmed that it refuses new claims; check its pod on the node"
		if v.spent(v1alpha1.StepRefuse) >= v.drainTimeout() {
			return v.giveUp(v1alpha1.StepRefuse, ReasonAgentNotResponding, message)
		}
		return v.leaving(v1alpha1.StepRefuse, ReasonWaitingForAgent, "waiting for the agent to refuse new claims").
			until(v.drainTimeout(), v.spent(v1alpha1.StepRefuse))
	}},
	{"wait for pods", func(v *view) bool {
		return v.mustLeave() && len(v.Drain.Waited) > 0 && !v.empty() && v.waitsForPods()
	}, func(v *view) Decision {
		return v.leaving(v1alpha1.StepRefuse, ReasonWaitingForPods, "waiting for these pods before the drain: "+names(v.Drain.Waited)).
			until(v.Wanted.Upgrade.WaitTimeout, v.spent(v1alpha1.StepRefuse))
	}},
	{"drain", func(v *view) bool { return v.mustLeave() && !v.empty() && !v.deserted() }, drain},
	{"stop agent", func(v *view) bool { return v.mustLeave() }, func(v *view) Decision {
		l := v.Node.Labels
		l.Agent = ""
		return v.leaving(v1alpha1.StepStopAgent, ReasonAgentStopping, "no claim is prepared; stopping the agent").place(l)
	}},
	{"agent stopped", func(v *view) bool {
		return v.Node.Labels.Agent == "" && v.Agent.State != PodAbsent && (v.closed() || v.agent == "")
	}, func(v *view) Decision {
		return v.stalling(v.leaving(v1alpha1.StepStopAgent, ReasonAgentStopping, "waiting for pod "+v.Agent.Name+" to terminate"), stopTimeout)
	}},
}

// underReset returns a GPU with an unfinished reset and the time since its order, or "" if there is none or the reset timed out.
func (v *view) underReset() (gpu string, spent time.Duration) {
	for _, order := range v.Spec.Remediations {
		ends := func(r v1alpha1.AgentRemediation) bool {
			return r.ID == order.ID && (r.State == v1alpha1.RemediationStateReset || r.State == v1alpha1.RemediationStateFailed)
		}
		if order.Step != v1alpha1.OrderReset || v.AgentReports() && slices.ContainsFunc(v.Status.Agent.Remediations, ends) {
			continue
		}
		spent = 0
		for _, status := range v.Status.Remediations {
			if status.GPU == order.GPU {
				spent = v.Now.Sub(status.Since.Time)
			}
		}
		if spent < resetTimeout {
			return order.GPU, spent
		}
	}
	return "", 0
}

// validationExists reports whether objects of a validation exist.
func (v *view) validationExists() bool {
	return v.Validation.State != ValidationNone || v.Validation.Leftover
}

// operation returns the maintenance operation for which the GPUs are taken out of service.
func (v *view) operation() v1alpha1.Operation {
	if v.entered {
		return v.Spec.Maintenance.Operation
	}
	if v.otherMIGMode() && !v.otherDriver() && !v.retires() {
		return v1alpha1.OperationMIGMode
	}
	return v1alpha1.OperationDriverSwap
}

// maintenance returns the spec.maintenance to write, without ID and Since.
func (v *view) maintenance() v1alpha1.Maintenance {
	return v1alpha1.Maintenance{Operation: v.operation(), Reason: v.purpose()}
}

// purpose returns the reason of the maintenance, which appears in errors of refused claims.
func (v *view) purpose() string {
	switch {
	case v.retires():
		return "Tessera is being removed from the node"
	case v.restarts():
		return "the driver restarts"
	case v.operation() == v1alpha1.OperationMIGMode:
		return fmt.Sprintf("the MIG mode changes to %s", v.Spec.MIGMode)
	case v.Spec.Driver != nil && v.Spec.Driver.Version != "":
		return fmt.Sprintf("the driver changes to %s", v.Spec.Driver.Version)
	default:
		return "the driver changes"
	}
}

// deserted reports whether an unresponsive agent is the only remaining holder of the GPUs on a retiring node.
func (v *view) deserted() bool {
	if !v.retires() || v.refusing() && v.Agent.State == PodReady || len(v.Drain.Holders) > 0 || v.Drain.Unreadable {
		return false
	}
	limit := v.drainTimeout()
	return v.spent(v1alpha1.StepRefuse) >= limit || v.spent(v1alpha1.StepDrain) >= limit || v.Status.Step == v1alpha1.StepStopAgent
}

// waitsForPods reports whether to keep waiting for pods. After the wait has ended in this upgrade it does not resume.
func (v *view) waitsForPods() bool {
	limit := v.Wanted.Upgrade.WaitTimeout
	return v.Status.Step != v1alpha1.StepDrain && (limit == 0 || v.spent(v1alpha1.StepRefuse) < limit)
}

// drain empties the node. On a retiring node no pod is evicted: pods end by themselves, or an administrator removes them.
func drain(v *view) Decision {
	reason, message := v.holding()
	if v.retires() {
		d := blocked(ReasonGPUsInUse, "operands are removed when no pod uses the GPUs; "+message)
		d.Step = v1alpha1.StepDrain
		return d
	}
	limit, spent := v.drainTimeout(), v.spent(v1alpha1.StepDrain)
	d := v.leaving(v1alpha1.StepDrain, ReasonDraining, message).until(limit, spent)
	if spent >= limit {
		if d = v.giveUp(v1alpha1.StepDrain, reason, message); d.Action != Wait {
			return d
		}
	}
	if len(v.Drain.Holders) > len(v.Drain.Leaving) {
		d.Action, d.After = Evict, evictAgain
	}
	return d
}

// holding returns the reason and a message that lists what keeps the node from being empty.
func (v *view) holding() (reason, message string) {
	switch {
	case len(v.Drain.Blocked) > 0:
		var list []string
		for _, b := range v.Drain.Blocked {
			list = append(list, b.Name+" ("+b.Reason+")")
		}
		return ReasonDrainBlocked, "pods that cannot be evicted: " + names(list)
	case v.Drain.Unreadable:
		return ReasonClaimUnreadable, "a claim on this node cannot be read and counts as in use; see the installer's log"
	case len(v.Drain.Holders) > 0:
		return ReasonDrainBlocked, "pods that use the GPUs: " + names(v.Drain.Holders)
	default:
		return ReasonClaimsPrepared, "claims are still prepared and no pod uses them; see the agent's log"
	}
}

// named is the maximum number of names in a message.
const named = 10

func names(list []string) string {
	if len(list) > named {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:named], ", "), len(list)-named)
	}
	return strings.Join(list, ", ")
}

// leaving returns a decision to wait in a step, independent of the taint.
func (v *view) leaving(step v1alpha1.UpgradeStep, reason, message string) Decision {
	return Decision{Phase: v1alpha1.PhaseUpgrading, Step: step, Reason: reason, Message: message, Action: Wait}
}

// giveUp ends a maintenance before any change: the attempt is counted, and spec is set to what the node has. A node that retires or already rolls
// back has no previous state and becomes Blocked.
func (v *view) giveUp(step v1alpha1.UpgradeStep, reason, message string) Decision {
	d := blocked(reason, message)
	d.Step = step
	if v.retires() || v.goingBack() {
		return d
	}
	if back := v.backInPlace(d); back.Action == RollBack {
		back.Phase, back.Attempt = v1alpha1.PhaseUpgrading, v.attempt(reason, message)
		return back
	}
	return d
}

// stalling marks a decision as Failed after the limit. The node continues when the awaited event occurs later.
func (v *view) stalling(d Decision, limit time.Duration) Decision {
	if d.Step != "" && v.spent(d.Step) >= limit {
		d.Phase = v1alpha1.PhaseFailed
		return d
	}
	return d.until(limit, v.spent(d.Step))
}
