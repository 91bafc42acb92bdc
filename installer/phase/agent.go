package phase

import (
	"fmt"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// runtime configures the container runtime to read CDI specs where it does not do so by default.
var runtime = []rule{
	{"place toolkit", func(v *view) bool { return v.Node.Labels.Toolkit != v.toolkit }, func(v *view) Decision {
		l := v.Node.Labels
		l.Toolkit = v.toolkit
		return v.in(v1alpha1.PhaseDriverReady, v1alpha1.StepStart, ReasonToolkitStarting, "placing the toolkit, which checks the container runtime").place(l)
	}},
	{"runtime ready", func(v *view) bool { return !v.runtimeReady() }, func(v *view) Decision {
		if v.Toolkit.State == PodFailed {
			return v.broken(ReasonToolkitFailed, "the container runtime could not be configured to read CDI specs"+v.Toolkit.why())
		}
		return v.in(v1alpha1.PhaseDriverReady, v1alpha1.StepStart, ReasonToolkitStarting,
			"the container runtime is being configured to read CDI specs"+v.Toolkit.why())
	}},
}

// runtimeReady reports whether the runtime reads CDI specs, or the toolkit is not required.
func (v *view) runtimeReady() bool {
	return !v.toolkit || v.Toolkit.State == PodReady || v.surveyed() && v.Status.Hardware.CDI
}

// modes changes the MIG mode while no process has the GPUs open.
var modes = []rule{
	{"operate", func(v *view) bool { return v.mayOperate() && v.Operation.State == PodAbsent }, func(v *view) Decision {
		if v.Obstacle != "" && v.spent(v1alpha1.StepOperate) >= v.Wanted.Upgrade.DriverTimeout {
			return v.unchanged("the pod that changes the MIG mode could not be created: " + v.Obstacle)
		}
		return v.operating(fmt.Sprintf("changing the MIG mode to %s", v.Spec.MIGMode)).do(Operate)
	}},
	{"operated", func(v *view) bool { return v.mayOperate() && v.Operation.State != PodSucceeded }, func(v *view) Decision {
		limit, spent := v.Wanted.Upgrade.DriverTimeout, v.Now.Sub(v.Operation.Since)
		switch {
		case v.Operation.State == PodFailed:
			return v.unchanged("the MIG mode did not change" + v.Operation.why())
		case spent >= limit:
			return v.unchanged(fmt.Sprintf("the MIG mode did not change within %s%s", limit, v.Operation.why()))
		default:
			return v.operating("the MIG mode is changing").until(limit, spent)
		}
	}},
	{"end operation before the agent comes", (*view).operationStrays, endOperation},
}

// operationStrays reports whether a MIG mode operation exists that is no longer wanted while no agent has the GPUs open.
func (v *view) operationStrays() bool {
	return v.Operation.State != PodAbsent && v.Node.Labels.Agent == "" && !v.mayOperate()
}

// mayOperate reports whether the mode must change, the agent is off the node and no operation for another mode exists.
func (v *view) mayOperate() bool {
	return v.entered && v.otherMIGMode() && v.Node.Labels.Agent == "" && (v.Operation.State == PodAbsent || v.operationFits())
}

// operationFits reports whether the existing operation is for the desired MIG mode.
func (v *view) operationFits() bool { return v.Operation.Barrier == string(v.Spec.MIGMode) }

func (v *view) operating(message string) Decision {
	return v.in(v1alpha1.PhaseDriverReady, v1alpha1.StepOperate, ReasonMIGModeChanging, message)
}

// unchanged gives up a MIG mode change: the attempt is recorded and spec is rolled back, so that the agent returns with the mode that the GPUs have.
func (v *view) unchanged(message string) Decision {
	d := v.operating(message).do(RollBack)
	d.Reason, d.Driver, d.Attempt = ReasonMIGModeFailed, v.Spec.Driver, v.attempt(ReasonMIGModeFailed, message)
	d.Attempt.Digest = MIGAttempt(v.Spec.MIGMode)
	return d
}

// agents starts the node agent and waits until it is accepted.
var agents = []rule{
	{"place agent", func(v *view) bool { return v.agent != "" && v.Node.Labels.Agent != v.agent }, func(v *view) Decision {
		l := v.Node.Labels
		l.Agent = v.agent
		return v.in(v1alpha1.PhaseToolkitReady, v1alpha1.StepStart, ReasonAgentStarting, "placing the node agent").place(l)
	}},
	{"agent accepted", func(v *view) bool { return v.agent != "" && !v.AgentAccepted() && !v.agentGraced() }, func(v *view) Decision {
		spent := v.agentSpent()
		switch {
		case v.Agent.State == PodFailed:
			return v.fail(v1alpha1.StepStart, ReasonAgentFailed, "the node agent is not running"+v.Agent.why())
		case spent >= agentTimeout:
			return v.fail(v1alpha1.StepStart, ReasonAgentFailed, fmt.Sprintf("the node agent was not ready within %s%s", agentTimeout, v.agentWhy()))
		default:
			return v.in(v1alpha1.PhaseToolkitReady, v1alpha1.StepStart, ReasonAgentStarting,
				"waiting for the node agent to be ready"+v.agentWhy()).until(agentTimeout, spent)
		}
	}},
	{"mode changed", func(v *view) bool {
		return v.entered && v.otherMIGMode() && v.Operation.State != PodAbsent && v.operationFits()
	}, func(v *view) Decision {
		return v.unchanged(fmt.Sprintf("the MIG mode is %s after the change", v.Status.Agent.MIGMode))
	}},
	{"end operation", func(v *view) bool { return v.Operation.State != PodAbsent }, endOperation},
}

// agentWhy returns why the agent is not accepted, to be appended to a message: what its pod reports, or why it cannot use the driver.
func (v *view) agentWhy() string {
	if v.AgentRuns() && v.Status.Agent.Message != "" {
		return ": " + v.Status.Agent.Message
	}
	return v.Agent.why()
}

// endOperation deletes the operation's pod and waits until it is gone.
func endOperation(v *view) Decision {
	step := v1alpha1.StepOperate
	if v.Node.Labels.Agent != "" {
		step = v1alpha1.StepStart
	}
	d := v.in(v1alpha1.PhaseAgentReady, step, ReasonRestoring, "deleting the pod that changed the MIG mode")
	if v.Operation.State != PodTerminating {
		d.Action = EndOperate
	}
	return d
}

// agentSpent returns how long the agent has been awaited. After a timeout it returns forever until the agent is accepted.
func (v *view) agentSpent() time.Duration {
	switch {
	case v.closed():
		return v.spent(v1alpha1.StepStart)
	case v.Status.Phase == v1alpha1.PhaseFailed && v.Status.Reason == ReasonAgentFailed:
		return forever
	case v.Status.Phase == v1alpha1.PhaseToolkitReady:
		return v.Now.Sub(v.Status.Since.Time)
	default:
		return 0
	}
}

// broken returns a failure that does not roll back the driver.
func (v *view) broken(reason, message string) Decision {
	d := Decision{Phase: v1alpha1.PhaseFailed, Reason: reason, Message: message, Action: Wait}
	if v.closed() {
		d.Step = v1alpha1.StepStart
	}
	return d
}
