package phase

import (
	"cmp"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// How long things may take that no policy speaks of.
const (
	// agentTimeout is how long an agent may take to be accepted, agentGrace how long a node in service may be without one before it is not Ready.
	agentTimeout = 5 * time.Minute
	agentGrace   = 2 * time.Minute
	// stopTimeout is how long a pod may take to go before the node says that it does not.
	stopTimeout = 10 * time.Minute
	// validateAgain is after what time a validation that failed is made again where there is nothing to go back to.
	validateAgain = 10 * time.Minute
	// resetTimeout is for how long a node stays as it is because a GPU of it is being reset. Its remediation gives a reset up before.
	resetTimeout = 15 * time.Minute
	// evictAgain is after what time an eviction that was refused is asked for again.
	evictAgain = 10 * time.Second
)

// MIGAttempt returns what stands for a driver's digest in the attempt of a change of the MIG mode.
func MIGAttempt(mode v1alpha1.MIGMode) string { return "mig-mode/" + string(mode) }

// view is what rules ask: an observation and what follows from it.
type view struct {
	*Observed
	// driver is the digest that the node is to run, agent the pool of its agent; empty: none.
	driver, agent string
	// toolkit is whether the node's runtime must be told to read CDI specs.
	toolkit bool
	// entered is whether spec.maintenance stands.
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
		// Where policies have not spoken yet the agent that runs stays.
		v.agent = cmp.Or(o.Spec.AgentPool, o.Node.Labels.Agent, "default")
	}
	// Once told, the runtime says that it reads specs: that must not take away what keeps it so.
	v.toolkit = o.Wanted.Toolkit && (o.Node.Labels.Toolkit || o.Status.Hardware != nil && !o.Status.Hardware.CDI)
	return v
}

// closed reports whether the GPUs are out of service, or partly so.
func (v *view) closed() bool { return v.entered || v.Tainted || v.Node.Labels.Maintenance != "" }

// retires reports whether the node loses its agent or its driver because nobody wants them there any more.
func (v *view) retires() bool { return v.agent == "" || !v.Wanted.Driver && v.otherDriver() }

// otherDriver reports whether something else is installed than what is to run.
func (v *view) otherDriver() bool {
	label := v.Node.Labels.Driver
	return label != "" && label != v1alpha1.DriverLabelValue(v.driver) || v.Driver.State != PodAbsent && v.Driver.Digest != v.driver
}

// driverReady reports whether what is to run does.
func (v *view) driverReady() bool {
	return v.driver == "" || v.Driver.State == PodReady && !v.otherDriver()
}

// bare reports whether nothing of ours is installed on the host.
func (v *view) bare() bool { return v.Node.Labels.Driver == "" && v.Driver.State == PodAbsent }

// surveyed reports whether the discovery has spoken since the node booted.
func (v *view) surveyed() bool {
	return v.Status.Hardware != nil && v.Status.Hardware.BootID == v.Node.BootID
}

// loaded reports whether a driver is loaded, or may be: while its container starts, and until the discovery has spoken in this boot.
func (v *view) loaded() bool {
	if v.Driver.State == PodReady || v.Driver.State == PodStarting || v.AgentSpeaks() && v.Status.Agent.DriverVersion != "" {
		return true
	}
	return !v.surveyed() || v.Status.Hardware.LoadedDriver != ""
}

// agentGraced reports whether the agent of a node in service is away for a moment only, as when it is replaced or kubelet starts anew. One that says that
// there is no driver is not away.
func (v *view) agentGraced() bool {
	return !v.closed() && (v.Node.Labels.Ready || v.resets()) && v.validated() && !v.driverless() && v.agentAway() < agentGrace
}

// driverless reports whether the agent that runs says that there is no driver, where one is to be.
func (v *view) driverless() bool {
	return v.AgentRuns() && v.Status.Agent.DriverVersion == "" && !v.Wanted.Sandbox
}

// agentAway returns for how long the agent has not been accepted, as the status has it. Of one of which it does not say so that was seen just now.
func (v *view) agentAway() time.Duration {
	for _, c := range v.Status.Components {
		if c.Name == ComponentAgent && c.State != v1alpha1.ComponentReady {
			return v.Now.Sub(c.Since.Time)
		}
	}
	return 0
}

// refusing reports whether the agent has said that it refuses Prepares in this maintenance.
func (v *view) refusing() bool {
	return v.entered && v.AgentSpeaks() && v.Status.Agent.Maintenance == v.Spec.Maintenance.ID
}

// empty reports whether nothing is prepared on the node any more. The agent's word counts, not the pods': one that came back to a claim that
// is allocated here is refused and not in the way.
func (v *view) empty() bool {
	return v.refusing() && v.Status.Agent.PreparedClaims != nil && *v.Status.Agent.PreparedClaims == 0 && !v.Drain.Unreadable
}

// otherMIGMode reports whether the GPUs are in another MIG mode than they are to be.
func (v *view) otherMIGMode() bool {
	return v.Wanted.Managed && v.AgentSpeaks() && v.Spec.MIGMode.Differs(v.Status.Agent)
}

// mustLeave reports whether the agent must stop: with it, the GPUs are taken out of service.
func (v *view) mustLeave() bool {
	return v.Node.Labels.Agent != "" && (v.agent == "" || v.otherDriver() && v.loaded() || v.otherMIGMode() && v.Operation.State == PodAbsent)
}

// validated reports whether what runs has been proven: in this boot, with this driver, and since the agent was last stopped for a maintenance.
func (v *view) validated() bool {
	p := v.Status.Validated
	if p == nil || p.BootID != v.Node.BootID || p.Digest != v.driver {
		return false
	}
	return !v.entered || !p.At.Before(&v.Spec.Maintenance.Since) || !v.Agent.Since.After(v.Spec.Maintenance.Since.Time)
}

// proves reports whether claims prove the node. Where GPUs belong to virtual machines there is no driver that could run anything.
func (v *view) proves() bool {
	return v.Wanted.Validator && v.agent != "" && !v.Wanted.Sandbox
}

// failedBefore returns the attempt that still counts: with what policies want, and not with what is to run now.
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

// spent returns for how long the node has been in a step of an upgrade. One that stands still in it stays so until it moves.
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

// drainTimeout is how long a drain may take. A node that no policy speaks of any more has no less.
func (v *view) drainTimeout() time.Duration {
	if limit := v.Wanted.Upgrade.DrainTimeout; limit > 0 {
		return limit
	}
	return agentTimeout
}

// in returns a decision to wait: in service in a phase of the way to Ready, out of service in a step of the upgrade.
func (v *view) in(phase v1alpha1.NodePhase, step v1alpha1.UpgradeStep, reason, message string) Decision {
	d := Decision{Phase: phase, Reason: reason, Message: message, Action: Wait}
	if v.closed() {
		d.Phase, d.Step = v1alpha1.PhaseUpgrading, step
	}
	return d
}

// place returns a decision with the labels that it writes.
func (d Decision) place(l Labels) Decision { d.Action, d.Labels = Place, l; return d }

// do returns a decision with an action that needs nothing but its name.
func (d Decision) do(a Action) Decision { d.Action = a; return d }

// until returns a decision that is looked at again when a span of a limit is over; no limit is none.
func (d Decision) until(limit, spent time.Duration) Decision {
	if limit > spent {
		d.After = limit - spent
	}
	return d
}
