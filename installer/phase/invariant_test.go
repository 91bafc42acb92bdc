package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// invariant must hold in every state for the action that the installer is about to perform.
type invariant struct {
	name   string
	broken func(w *world, d Decision) bool
	// always: the invariant must also hold if the world changes between the decision and the action.
	always bool
}

var invariants = []invariant{
	{"nothing is taken from a GPU that is being reset", func(w *world, d Decision) bool {
		takes := d.Action == Taint || d.Action == Enter || d.Action == Evict || d.Action == Place && w.labelAgent && d.Labels.Agent == ""
		return takes && w.ordered && !w.resetLate
	}, false},
	{"the agent does not go while it resets a GPU", func(w *world, d Decision) bool {
		return d.Action == Place && w.labelAgent && d.Labels.Agent == "" && w.ordered && !w.resetLate
	}, true},
	{"a loaded driver is never removed while a claim is prepared", func(w *world, d Decision) bool {
		return d.Action == Place && w.labelDriver != 0 && number(d.Labels.Driver) != w.labelDriver && w.loaded != 0 && w.prepared
	}, true},
	{"the agent never goes while a claim is prepared", func(w *world, d Decision) bool {
		return d.Action == Place && w.labelAgent && d.Labels.Agent == "" && w.prepared
	}, true},
	{"no pod is evicted before the taint and the agent's refusal", func(w *world, d Decision) bool {
		return d.Action == Evict && (!w.tainted || w.entered == 0 || w.gate == 0 || w.labelMaint == "")
	}, false},
	{"no pod is evicted if no driver is loaded", func(w *world, d Decision) bool {
		return d.Action == Evict && w.loaded == 0 && w.host == 0 && w.surveyed && w.driver != PodStarting && (!w.reportedDriver || w.reportedBoot != w.boot)
	}, false},
	{"no pod is evicted from a retiring node", func(w *world, d Decision) bool {
		return d.Action == Evict && (w.unmanaged || w.noAgent || w.noDriver && w.labelDriver != 0)
	}, false},
	{"who is waited for is not evicted before the time", func(w *world, d Decision) bool {
		return d.Action == Evict && w.waited && !w.blocked && w.user != PodTerminating && w.step == v1alpha1.StepRefuse && !w.late
	}, false},
	{"an upgrade never begins on a node that is cordoned or not Ready", func(w *world, d Decision) bool {
		return (d.Action == Taint || d.Action == Enter) && !w.tainted && (w.cordoned || !w.ready) && !w.unmanaged && !w.noAgent && !w.noDriver &&
			(w.spec != w.lastGood || w.labelDriver == w.spec)
	}, false},
	{"in service means in service", func(w *world, d Decision) bool {
		return d.Action == Wait && (d.Phase == v1alpha1.PhaseReady || d.Phase == v1alpha1.PhaseRolledBack) &&
			(w.tainted || w.entered != 0 || w.labelMaint != "" || w.labelReady == (w.resetting || w.ordered) || w.spec != 9 && w.labelDriver != w.spec && !w.sandbox)
	}, false},
	{"a node stays in service while one of its GPUs is reset", func(w *world, d Decision) bool {
		return d.Action == Place && w.phase == v1alpha1.PhaseReady && d.Phase != w.phase && !w.labelReady && d.Labels.Ready
	}, false},
	{"Ready is proven in this boot with this driver", func(w *world, d Decision) bool {
		return d.Action == Wait && d.Phase == v1alpha1.PhaseReady && (!w.proven || w.provenBoot != w.boot || w.provenDriver != w.labelDriver)
	}, false},
	{"a Ready node's driver runs", func(w *world, d Decision) bool {
		return d.Action == Wait && d.Phase == v1alpha1.PhaseReady && w.spec != 9 && w.spec != 0 && w.driver != PodReady
	}, false},
	{"a Ready node's agent is not away for long", func(w *world, d Decision) bool {
		return d.Action == Wait && d.Phase == v1alpha1.PhaseReady && !w.noAgent && !w.accepted() && w.agentLate
	}, false},
	{"a node in service outlasts a moment in which its agent is not accepted", func(w *world, d Decision) bool {
		return d.Phase == v1alpha1.PhaseToolkitReady && w.phase == v1alpha1.PhaseReady && w.labelReady && w.agent == PodReady && !w.agentLate &&
			w.proven && w.provenBoot == w.boot && (w.reportedDriver || !w.reportedUID)
	}, false},
	{"the GPUs are not given back while the agent refuses", func(w *world, d Decision) bool {
		return d.Action == Untaint && w.gate != 0 && w.labelAgent && w.agent == PodReady && !w.unmanaged && !w.gone
	}, false},
	{"two drivers never meet", func(w *world, d Decision) bool {
		return d.Action == Place && d.Labels.Driver != "" && w.labelDriver != number(d.Labels.Driver) && w.driver != PodAbsent && w.driverDigest != number(d.Labels.Driver)
	}, true},
	{"nothing is done to GPUs that an agent has open", func(w *world, d Decision) bool {
		removes := d.Action == Place && w.labelDriver != 0 && number(d.Labels.Driver) != w.labelDriver && w.loaded != 0
		return (removes || d.Action == Operate) && w.agent != PodAbsent && w.agent != PodFailed
	}, true},
	{"monitoring leaves before the agent", func(w *world, d Decision) bool {
		return d.Action == Place && w.labelAgent && d.Labels.Agent == "" && d.Labels.Ready
	}, true},
	{"an operation needs a driver that is loaded", func(w *world, d Decision) bool { return d.Action == Operate && w.loaded == 0 && w.host == 0 }, false},
	{"an agent starts with its driver", func(w *world, d Decision) bool {
		return d.Action == Place && !w.labelAgent && d.Labels.Agent != "" && w.spec != 9 && w.spec != 0 && !w.sandbox && w.driver != PodReady
	}, false},
	{"an agent starts with a runtime that reads CDI", func(w *world, d Decision) bool {
		return d.Action == Place && !w.labelAgent && d.Labels.Agent != "" && w.surveyed && !w.cdi && w.toolkit != PodReady
	}, false},
	{"a device plugin's node is not touched", func(w *world, d Decision) bool {
		return w.plugin && !w.unmanaged && w.entered == 0 && (d.Action != Wait || d.Reason != ReasonDevicePluginPresent)
	}, false},
	{"a node with an old kubelet is not touched", func(w *world, d Decision) bool {
		return w.oldKubelet && !w.plugin && !w.unmanaged && w.entered == 0 && (d.Action != Wait || d.Reason != ReasonKubeletTooOld)
	}, false},
	{"a node that two choose is not touched", func(w *world, d Decision) bool {
		return w.conflict && !w.unmanaged && w.entered == 0 && (d.Action != Wait || d.Phase != v1alpha1.PhaseBlocked)
	}, false},
	{"a host's driver gets no container", func(w *world, d Decision) bool {
		return d.Action == Place && d.Labels.Driver != "" && w.host != 0 && w.labelDriver == 0
	}, false},
	{"a host's driver that is refused is not used", func(w *world, d Decision) bool {
		return w.host != 0 && (w.host == 2 || w.refuse) && !w.unmanaged && (d.Action == KeepHost || d.Action == Place)
	}, false},
	{"a toolkit comes only where it is needed", func(w *world, d Decision) bool {
		return d.Action == Place && d.Labels.Toolkit && !w.labelToolkit && w.cdi
	}, false},
	{"a failure goes back to the last good driver", func(w *world, d Decision) bool {
		return d.Action == RollBack && d.Attempt != nil && !d.Attempt.Undisturbed() && numberOf(d.Driver) != w.lastGood && !ofMode(d.Attempt.Digest)
	}, false},
	{"no pod is evicted for a driver whose restart is not granted", func(w *world, d Decision) bool {
		return (d.Action == Evict || d.Action == Taint) && w.spec == w.labelDriver && w.driverInUse && w.restart != w.driverUID && !w.unmanaged && !w.noAgent && w.mig == w.mode
	}, false},
	{"no rollback to a driver of another kernel", func(w *world, d Decision) bool {
		return d.Action == RollBack && d.Attempt != nil && !d.Attempt.Undisturbed() && w.kernel != 0 && w.surveyed && numberOf(d.Driver) != w.kernel && !ofMode(d.Attempt.Digest)
	}, false},
	{"what was not touched goes back to what it has", func(w *world, d Decision) bool {
		return d.Action == RollBack && (d.Attempt == nil || d.Attempt.Undisturbed()) && w.labelDriver != 0 && numberOf(d.Driver) != w.labelDriver
	}, false},
	{"what is good is recorded only when it was proven", func(w *world, d Decision) bool {
		claimed := w.proven && w.provenBoot == w.boot && w.provenDriver == or(w.spec == 9, 0, w.spec)
		return d.Action == Record && !w.sandbox && !w.noAgent && w.check != ValidationPassed && !claimed
	}, false},
	{"an absent node has nothing left", func(w *world, d Decision) bool {
		return d.Phase == v1alpha1.PhaseAbsent && d.Action == Wait && !w.gone &&
			(w.tainted || w.entered != 0 || w.labelAgent || w.labelDriver != 0 || w.labelReady || w.labelMaint != "" || w.labelToolkit ||
				w.driver != PodAbsent || w.agent != PodAbsent || w.operation != PodAbsent || w.check != ValidationNone || w.leftover)
	}, false},
	{"what is done has an effect", func(w *world, d Decision) bool {
		after := *w
		if d.Action == Wait || d.Action == Evict || writeStatus(&after, d) {
			return false
		}
		perform(&after, d)
		return after == *w
	}, false},
	{"what was changed is proven before it is given back", func(w *world, d Decision) bool {
		return d.Action == Leave && w.agentNew && w.agent == PodReady && !w.provenNow && !w.unmanaged && !w.sandbox
	}, false},
	{"a driver is sent only to hardware that is known", func(w *world, d Decision) bool {
		return d.Action == Place && w.labelDriver == 0 && d.Labels.Driver != "" && !w.known
	}, false},
	{"no action of an administrator is requested without need", func(w *world, d Decision) bool { return d.Reason == ReasonNoDriver && !w.noDriver }, false},
	{"an operation has the GPUs to itself", func(w *world, d Decision) bool {
		return d.Action == Place && w.operation == PodStarting && (d.Labels.Agent != "" && !w.labelAgent || number(d.Labels.Driver) != w.labelDriver)
	}, false},
	{"nothing is done to a node that has gone", func(w *world, d Decision) bool {
		return w.gone && (d.Phase != v1alpha1.PhaseAbsent || d.Action != Wait && d.Action != Untaint)
	}, false},
	{"a node keeps its driver when its GPUNode loses its status", func(w *world, d Decision) bool {
		return d.Action == Taint && w.labelDriver != 0 && w.labelReady && !w.unmanaged && !w.noDriver && !w.noAgent && (w.spec == 0 || w.lastGood == 0 && !w.setGone)
	}, false},
	{"an action requests only existing objects", func(w *world, d Decision) bool {
		return d.Action == RollBack && d.Driver == nil && w.spec != 0
	}, false},
}

func ofMode(digest string) bool { return digest == MIGAttempt(v1alpha1.MIGEnabled) }

func violated(w *world, d Decision) string {
	for _, i := range invariants {
		if i.broken(w, d) {
			return i.name
		}
	}
	return ""
}

// dishonest checks the status in a world without further events.
func dishonest(w *world) string {
	serves := !w.tainted && w.entered == 0 && w.labelMaint == "" && w.labelReady && (w.agent == PodReady || w.noAgent)
	switch {
	case w.gone:
		return or(w.phase == v1alpha1.PhaseAbsent && !w.tainted, "", "a node that has gone leaves its taint")
	case w.unmanaged:
		return or(w.phase == v1alpha1.PhaseAbsent || w.phase == v1alpha1.PhaseBlocked && (w.unreadable || w.badAgent && w.prepared), "", "a node that opted out still has operands")
	case w.noDriver && w.host == 0 || w.plugin || w.oldKubelet || w.conflict || w.host != 0 && (w.host == 2 || w.refuse):
		return or(w.phase == v1alpha1.PhaseBlocked, "", "what another must settle does not end in Blocked")
	case w.noAgent:
		return or(w.phase == v1alpha1.PhaseReady || w.phase == v1alpha1.PhaseBlocked && w.unreadable, "", "a node without an agent is not Ready")
	case w.badAgent || w.badCheck || w.badDriver == w.spec && w.spec != 0:
		return or(w.phase == v1alpha1.PhaseFailed || w.phase == v1alpha1.PhaseRolledBack || w.phase == v1alpha1.PhaseReady && serves ||
			w.phase == v1alpha1.PhaseBlocked, "", "what does not work does not end in Failed")
	case w.kernel != 0 && w.spec != w.kernel:
		return or(w.phase == v1alpha1.PhaseFailed && (w.paused || w.cordoned || !w.ready || w.attempts >= 2), "", "a driver of another kernel does not end in Failed")
	case w.driverInUse:
		return or(w.phase == v1alpha1.PhaseFailed && w.reason == ReasonDriverInUse && w.labelReady && !w.tainted && (w.paused || w.cordoned || !w.ready || w.blocked || w.attempts >= 2), "",
			"a driver that cannot start is not restarted")
	case w.operation != PodAbsent || w.check != ValidationNone || w.leftover:
		return "what served its turn is left behind"
	case w.phase == v1alpha1.PhaseBlocked && w.step == v1alpha1.StepDrain && w.spec == w.lastGood && (w.unreadable || w.blocked && w.user != PodAbsent):
		return "" // rolling back, and no pod may be evicted
	case !serves:
		return "it does not come back into service"
	case w.user != PodAbsent && !w.prepared:
		return "a user pod waits without end"
	case (w.spec == w.wanted || w.host != 0 || w.sandbox) && w.mig == w.wantedMIG:
		return or(w.phase == v1alpha1.PhaseReady, "", "what is wanted runs, and the node is not Ready")
	case w.attempts > 0 && (w.attempt == w.wanted || w.attemptMIG):
		return or(w.phase == v1alpha1.PhaseBlocked || w.phase == v1alpha1.PhaseRolledBack || w.phase == v1alpha1.PhaseFailed, "", "a failure is not reported")
	default:
		return or(w.paused || w.cordoned || !w.ready, "", "it stays with an old driver for no reason")
	}
}
