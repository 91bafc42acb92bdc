package phase

import (
	"cmp"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Timeouts that no policy sets.
const (
	// agentTimeout limits how long an agent may take to be accepted, agentGrace how long a node in service stays Ready without one.
	agentTimeout = 5 * time.Minute
	agentGrace   = 2 * time.Minute
	// stopTimeout limits how long a pod may take to terminate before the node is Failed.
	stopTimeout = 10 * time.Minute
	// validateAgain is the delay before a failed validation is repeated where there is no driver to roll back to.
	validateAgain = 10 * time.Minute
	// resetTimeout limits how long a GPU reset delays a maintenance. The remediation gives up a reset earlier.
	resetTimeout = 15 * time.Minute
	// evictAgain is the delay before a refused eviction is retried.
	evictAgain = 10 * time.Second
)

// MIGAttempt returns the value of Attempt.Digest for a change of the MIG mode.
func MIGAttempt(mode v1alpha1.MIGMode) string { return "mig-mode/" + string(mode) }

// view is the input of rules: an observation and values derived from it.
type view struct {
	*Observed
	// driver is the digest of the desired driver, agent the pool of the desired agent. Empty means none.
	driver, agent string
	// toolkit reports whether the node's runtime must be configured to read CDI specs.
	toolkit bool
	// entered reports whether spec.maintenance is set.
	entered bool
}

func viewOf(o *Observed) *view {
	v := &view{Observed: o, entered: o.Spec.Maintenance != nil}
	if !o.Wanted.Managed {
		return v
	}
	if d := o.Spec.Driver; d != nil && d.Source == v1alpha1.DriverContainer && o.Wanted.Driver {
		v.driver = d.Digest
	}
	if o.Wanted.Agent {
		// Without a pool from a policy, the running agent stays.
		v.agent = cmp.Or(o.Spec.AgentPool, o.Node.Labels.Agent, "default")
	}
	// After configuration the runtime reports that it reads CDI specs. That must not remove the toolkit, which keeps the configuration.
	v.toolkit = o.Wanted.Toolkit && (o.Node.Labels.Toolkit || o.Status.Hardware != nil && !o.Status.Hardware.CDI)
	return v
}

// closed reports whether the GPUs are fully or partly out of service.
func (v *view) closed() bool { return v.entered || v.Tainted || v.Node.Labels.Maintenance != "" }

// retires reports whether the node loses its agent or its driver because neither policy nor user wants it any more.
func (v *view) retires() bool { return v.agent == "" || !v.Wanted.Driver && v.otherDriver() }

// otherDriver reports whether a driver other than the desired one is installed.
func (v *view) otherDriver() bool {
	label := v.Node.Labels.Driver
	return label != "" && label != v1alpha1.DriverLabelValue(v.driver) || v.Driver.State != PodAbsent && v.Driver.Digest != v.driver
}

// driverReady reports whether the desired driver is running.
func (v *view) driverReady() bool {
	return v.driver == "" || v.Driver.State == PodReady && !v.otherDriver()
}

// bare reports whether no driver of ours is installed on the host.
func (v *view) bare() bool { return v.Node.Labels.Driver == "" && v.Driver.State == PodAbsent }

// surveyed reports whether the discovery has reported since the node booted.
func (v *view) surveyed() bool {
	return v.Status.Hardware != nil && v.Status.Hardware.BootID == v.Node.BootID
}

// loaded reports whether a driver is or may be loaded: also while its container starts, and until the discovery reports in this boot.
func (v *view) loaded() bool {
	if v.Driver.State == PodReady || v.Driver.State == PodStarting || v.AgentReports() && v.Status.Agent.DriverVersion != "" {
		return true
	}
	return !v.surveyed() || v.Status.Hardware.LoadedDriver != ""
}

// agentGraced reports whether the agent of a node in service is only briefly away, as during its replacement or a restart of kubelet. An agent that
// reports no driver is not away.
func (v *view) agentGraced() bool {
	return !v.closed() && (v.Node.Labels.Ready || v.resets()) && v.validated() && !v.driverless() && v.agentAway() < agentGrace
}

// driverless reports whether the running agent reports no driver where one is required.
func (v *view) driverless() bool {
	return v.AgentRuns() && v.Status.Agent.DriverVersion == "" && !v.Wanted.Sandbox
}

// agentAway returns how long the agent has not been accepted, from status.components. Zero if the status does not have it yet.
func (v *view) agentAway() time.Duration {
	for _, c := range v.Status.Components {
		if c.Name == ComponentAgent && c.State != v1alpha1.ComponentReady {
			return v.Now.Sub(c.Since.Time)
		}
	}
	return 0
}

// refusing reports whether the agent has confirmed that it refuses Prepare calls in this maintenance.
func (v *view) refusing() bool {
	return v.entered && v.AgentReports() && v.Status.Agent.Maintenance == v.Spec.Maintenance.ID
}

// empty reports whether no claim is prepared on the node. It uses the agent's count and not the list of pods: a pod that was recreated for a claim
// allocated here is refused and holds nothing.
func (v *view) empty() bool {
	return v.refusing() && v.Status.Agent.PreparedClaims != nil && *v.Status.Agent.PreparedClaims == 0 && !v.Drain.Unreadable
}

// otherMIGMode reports whether the GPUs are in a MIG mode other than the desired one.
func (v *view) otherMIGMode() bool {
	return v.Wanted.Managed && v.AgentReports() && v.Spec.MIGMode.Differs(v.Status.Agent)
}

// mustLeave reports whether the agent must stop, and with it the GPUs go out of service.
func (v *view) mustLeave() bool {
	return v.Node.Labels.Agent != "" && (v.agent == "" || v.otherDriver() && v.loaded() || v.restarts() && v.loaded() ||
		v.otherMIGMode() && v.Operation.State == PodAbsent)
}

// validated reports whether the node has been validated in this boot, with this driver, and since the agent last stopped for a maintenance.
func (v *view) validated() bool {
	p := v.Status.Validated
	if p == nil || p.BootID != v.Node.BootID || p.Digest != v.driver {
		return false
	}
	return !v.entered || !p.At.Before(&v.Spec.Maintenance.Since) || !v.Agent.Since.After(v.Spec.Maintenance.Since.Time)
}

// proves reports whether claims validate the node. Nodes for virtual machines have no driver and are not validated.
func (v *view) proves() bool {
	return v.Wanted.Validator && v.agent != "" && !v.Wanted.Sandbox
}

// failedBefore returns the attempt that still counts: for what the policies want, and not for what spec has now.
func (v *view) failedBefore() *v1alpha1.Attempt {
	a := v.Status.Attempt
	switch {
	case a == nil:
		return nil
	case a.Digest == v.Wanted.Digest && a.Digest != v.driver && a.Digest != "":
		return a
	case a.Digest == MIGAttempt(v.Wanted.MIGMode) && v.Spec.MIGMode != v.Wanted.MIGMode:
		return a
	default:
		return nil
	}
}

// spent returns how long the node has been in a step of an upgrade. For a node that is Failed or Blocked in it, it returns forever.
func (v *view) spent(step v1alpha1.UpgradeStep) time.Duration {
	if v.Status.Step != step {
		return 0
	}
	if v.Status.Phase == v1alpha1.PhaseFailed || v.Status.Phase == v1alpha1.PhaseBlocked && v.Status.Reason != ReasonGPUsInUse {
		return forever
	}
	return v.Now.Sub(v.Status.Since.Time)
}

const forever time.Duration = 1<<63 - 1

// drainTimeout limits a drain. A node without a policy gets agentTimeout.
func (v *view) drainTimeout() time.Duration {
	if limit := v.Wanted.Upgrade.DrainTimeout; limit > 0 {
		return limit
	}
	return agentTimeout
}

// in returns a decision to wait: with the given phase if the node is in service, otherwise with the step of the upgrade.
func (v *view) in(phase v1alpha1.NodePhase, step v1alpha1.UpgradeStep, reason, message string) Decision {
	d := Decision{Phase: phase, Reason: reason, Message: message, Action: Wait}
	if v.closed() {
		d.Phase, d.Step = v1alpha1.PhaseUpgrading, step
	}
	return d
}

// place returns a copy of the decision that places labels.
func (d Decision) place(l Labels) Decision { d.Action, d.Labels = Place, l; return d }

// do returns a copy of the decision with an action that needs no parameters.
func (d Decision) do(a Action) Decision { d.Action = a; return d }

// until returns a copy of the decision that is reevaluated when the limit ends. A limit of zero means no limit.
func (d Decision) until(limit, spent time.Duration) Decision {
	if limit > spent {
		d.After = limit - spent
	}
	return d
}
