package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// move is an event outside the installer. It changes the world, or returns false if it does not apply.
type move struct {
	name string
	do   func(w *world) bool
}

// progress has the events that occur without intervention in a fair environment, most urgent first.
var progress = []move{
	{"the discovery looks", func(w *world) bool { w.known = true; return set(&w.surveyed, true) }},
	{"kubelet: driver", driverMoves},
	{"kubelet: agent", agentMoves},
	{"the agent speaks", agentSpeaks},
	{"kubelet: toolkit", func(w *world) bool {
		switch {
		case w.labelToolkit && w.toolkit == PodAbsent:
			w.toolkit = PodStarting
		case w.labelToolkit && w.toolkit == PodStarting:
			w.toolkit, w.cdi = PodReady, true
		case !w.labelToolkit && w.toolkit != PodAbsent:
			w.toolkit = PodAbsent
		default:
			return false
		}
		return true
	}},
	{"kubelet: operation", func(w *world) bool {
		switch {
		case w.operation == PodTerminating:
			w.operation = PodAbsent
		case w.operation == PodStarting && w.badMode:
			w.operation = PodFailed
		case w.operation == PodStarting:
			w.operation, w.mode = PodSucceeded, !w.voidMode
		default:
			return false
		}
		return true
	}},
	{"kubelet: user", userMoves},
	{"kubelet: validation", func(w *world) bool {
		if w.check != ValidationRunning || w.begun || w.agent != PodReady || w.loaded == 0 && w.host == 0 {
			return false
		}
		// The agent admits validation pods only in their step.
		if w.gate != 0 && w.step != v1alpha1.StepValidate {
			return false
		}
		w.check = ValidationPassed
		if w.badCheck {
			w.check = ValidationFailed
		}
		return true
	}},
	{"a reset is ordered", func(w *world) bool { return w.resetting && !w.labelReady && !w.leaves() && set(&w.ordered, true) }},
	{"a reset is not ordered", func(w *world) bool { return !w.ordered && w.leaves() && set(&w.resetting, false) }},
	{"a reset ends", func(w *world) bool {
		ok := w.ordered && (w.agent == PodReady || w.resetLate)
		if ok {
			w.resetting, w.ordered, w.resetLate = false, false, false
		}
		return ok
	}},
	{"the rollout grants", grant},
}

// leaves reports whether an action on the node is in progress, during which the remediation orders no reset.
func (w *world) leaves() bool {
	return w.tainted || w.entered != 0 || w.labelMaint != "" || w.phase == v1alpha1.PhaseUpgrading || w.unmanaged || w.gone
}

func set(b *bool, value bool) bool {
	changed := *b != value
	*b = value
	return changed
}

func driverMoves(w *world) bool {
	here := w.driver != PodAbsent
	switch {
	case here && w.driver != PodTerminating && w.labelDriver != w.driverDigest:
		w.driver = PodTerminating
	case w.driver == PodTerminating:
		// The container unloads its modules on exit unless a process has them open.
		w.driver, w.driverLate, w.driverDigest = PodAbsent, false, 0
		if !w.prepared {
			w.loaded = 0
		}
	case !here && w.labelDriver != 0:
		w.driver, w.driverDigest, w.driverLate, w.driverInUse = PodPending, w.labelDriver, false, false
		if w.reloads {
			w.driverUID = or[uint8](w.driverUID == 1, 2, 1)
		}
	case w.driver == PodPending && !w.supported():
		w.driver = PodFailed // by the verb preflight
	case w.driver == PodPending && w.reloads && w.loaded != 0 && w.prepared:
		w.driver, w.driverInUse = PodFailed, true // by the verb unload
	case w.driver == PodPending && (w.loaded == 0 || w.loaded == w.driverDigest || !w.prepared):
		w.driver = PodStarting
		if w.loaded != w.driverDigest || w.reloads {
			w.loaded = 0
		}
	case w.driver == PodStarting && w.badDriver == w.driverDigest:
		w.driver = PodFailed
	case w.driver == PodStarting:
		w.driver, w.loaded, w.driverLate = PodReady, w.driverDigest, false
	case w.driver == PodFailed && w.driverInUse:
		if w.prepared {
			return false
		}
		w.driver, w.driverLate, w.driverInUse = PodPending, false, false
	case w.driver == PodFailed && w.badDriver != w.driverDigest && w.supported():
		w.driver, w.driverLate = PodPending, false
	default:
		return false
	}
	return true
}

// supported reports whether the driver on the node supports the running kernel.
func (w *world) supported() bool { return w.kernel == 0 || w.kernel == w.driverDigest }

func agentMoves(w *world) bool {
	switch {
	case w.labelAgent && w.agent == PodAbsent:
		w.agent, w.agentNew, w.reportedUID, w.agentLate = PodStarting, w.entered != 0, false, false
	case !w.labelAgent && w.agent != PodAbsent && w.agent != PodTerminating:
		w.agent = PodTerminating
	case w.agent == PodTerminating:
		w.agent, w.agentLate = PodAbsent, false
	case w.agent == PodStarting && !w.badAgent:
		w.agent, w.agentLate = PodReady, false
	case w.agent == PodStarting && w.badAgent:
		w.agent = PodFailed
	case w.agent == PodFailed && !w.badAgent:
		w.agent = PodStarting
	default:
		return false
	}
	return true
}

func agentSpeaks(w *world) bool {
	if w.agent != PodReady {
		return false
	}
	before := *w
	w.reported, w.reportedUID, w.reportedBoot = true, true, w.boot
	w.reportedDriver = w.loaded != 0 || w.host != 0
	w.reportedAccepted, w.reportedMode = true, w.mode && w.reportedDriver
	w.gate, w.reportedID = w.entered, w.entered
	w.reportedPrepared = w.entered != 0 && (w.prepared || w.check != ValidationNone && !w.begun || w.leftover)
	return before != *w
}

func userMoves(w *world) bool {
	switch {
	case w.user == PodPending && !w.prepared && w.agent == PodReady && w.gate == 0 && (w.loaded != 0 || w.host != 0 || w.sandbox):
		w.prepared = true
	case w.user == PodPending && w.prepared:
		w.user = PodReady
	case w.user == PodTerminating && (!w.prepared || w.agent == PodReady):
		w.user, w.prepared = PodAbsent, false
	case w.waited && w.user == PodReady && w.entered != 0:
		w.user = PodTerminating // the job completes
	case (w.unmanaged || w.noAgent || w.noDriver) && (w.user == PodReady || w.user == PodPending):
		w.user = PodTerminating // an administrator removes the pod
	default:
		return false
	}
	return true
}

// grant models the rollout as observed by one node.
func grant(w *world) bool {
	if w.gone || w.noDriver || w.unmanaged || w.conflict || w.plugin || w.oldKubelet {
		return false
	}
	tried := uint8(0)
	if w.attempts > 0 && (!w.attemptMIG && w.attempt == w.wanted || w.attemptMIG && w.wantedMIG) {
		tried = w.attempts
	}
	fresh := w.lastGood == 0 && !w.proven && !w.labelReady
	if !fresh && (w.paused || w.cordoned || !w.ready || tried >= 2) || w.sandbox {
		return false
	}
	spec := or(w.host == 0, w.wanted, w.spec)
	if w.spec == spec && w.mig == w.wantedMIG && w.restart == w.wantsRestart {
		return false
	}
	w.spec, w.mig, w.restart = spec, w.wantedMIG, w.wantsRestart
	return true
}

// timePasses expires every pending timeout.
func timePasses(w *world) bool {
	before := *w
	w.late, w.resetLate = true, w.ordered
	w.driverLate = w.driver == PodPending || w.driver == PodStarting
	w.agentLate = !w.accepted()
	w.operationLate = w.operation == PodStarting
	w.checkLate = w.check == ValidationRunning || w.check == ValidationFailed
	return before != *w
}

// reboot restarts the node with its pods.
func reboot(w *world) bool {
	w.boot++
	w.loaded, w.surveyed = 0, false
	if w.driver != PodAbsent && w.driver != PodTerminating {
		w.driver, w.driverLate, w.driverInUse = PodPending, false, false
	}
	if w.agent == PodReady || w.agent == PodFailed {
		w.agent, w.agentLate = PodStarting, false
	}
	if w.user == PodReady {
		w.user = PodPending
	}
	if w.check != ValidationNone {
		w.check, w.begun, w.leftover = ValidationNone, false, true
	}
	return true
}

// The disturbances, by their name in scenarios.
var disturbances = map[string]func(w *world) bool{
	"reboot": reboot,
	"new kernel": func(w *world) bool {
		ok := w.kernel == 1
		if ok {
			reboot(w)
			w.kernel, w.wanted = 2, 2
		}
		return ok
	},
	"user comes":   func(w *world) bool { ok := w.user == PodAbsent; w.user = or(ok, PodPending, w.user); return ok },
	"user goes":    func(w *world) bool { ok := w.user == PodReady; w.user = or(ok, PodTerminating, w.user); return ok },
	"cordon":       func(w *world) bool { w.cordoned = !w.cordoned; return true },
	"not ready":    func(w *world) bool { w.ready = !w.ready; return true },
	"edit to 2":    func(w *world) bool { ok := w.wanted != 2; w.wanted = 2; return ok },
	"edit to 3":    func(w *world) bool { ok := w.wanted != 3; w.wanted = 3; return ok },
	"edit to 1":    func(w *world) bool { ok := w.wanted != 1; w.wanted = 1; return ok },
	"want MIG":     func(w *world) bool { return set(&w.wantedMIG, true) },
	"opt out":      func(w *world) bool { return set(&w.unmanaged, true) },
	"opt in":       func(w *world) bool { return set(&w.unmanaged, false) },
	"agent off":    func(w *world) bool { return set(&w.noAgent, true) },
	"agent on":     func(w *world) bool { return set(&w.noAgent, false) },
	"plugin":       func(w *world) bool { w.plugin = !w.plugin; return true },
	"kubelet":      func(w *world) bool { w.oldKubelet = !w.oldKubelet; return true },
	"conflict":     func(w *world) bool { w.conflict = !w.conflict; return true },
	"reset a GPU":  func(w *world) bool { return set(&w.resetting, true) },
	"bad driver 2": func(w *world) bool { w.badDriver = or(w.badDriver == 2, uint8(0), uint8(2)); return true },
	"bad driver 1": func(w *world) bool { w.badDriver = or(w.badDriver == 1, uint8(0), uint8(1)); return true },
	"bad agent":    func(w *world) bool { w.badAgent = !w.badAgent; return true },
	"bad check":    func(w *world) bool { w.badCheck = !w.badCheck; return true },
	"driver off":   func(w *world) bool { return set(&w.noDriver, true) },
	"driver on":    func(w *world) bool { return set(&w.noDriver, false) },
	"node goes":    func(w *world) bool { return set(&w.gone, true) },
	"void mode":    func(w *world) bool { return set(&w.voidMode, true) },
	"bad mode":     func(w *world) bool { w.badMode = !w.badMode; return true },
	"budget":       func(w *world) bool { w.blocked = !w.blocked; return true },
	"unreadable":   func(w *world) bool { w.unreadable = !w.unreadable; return true },
	"waited":       func(w *world) bool { w.waited = !w.waited; return true },
	"pause":        func(w *world) bool { w.paused = !w.paused; return true },
	"delete agent": func(w *world) bool { ok := w.agent == PodReady; w.agent = or(ok, PodTerminating, w.agent); return ok },
	"delete driver": func(w *world) bool {
		ok := w.driver == PodReady
		w.driver = or(ok, PodTerminating, w.driver)
		return ok
	},
	"delete operation": func(w *world) bool {
		ok := w.operation == PodStarting
		w.operation = or(ok, PodTerminating, w.operation)
		return ok
	},
	"lose GPUNode": func(w *world) bool { return lose(w) },
	"lose status": func(w *world) bool {
		spec, mig, op, entered, ordered := w.spec, w.mig, w.op, w.entered, w.ordered
		lose(w)
		w.spec, w.mig, w.op, w.entered, w.ordered = spec, mig, op, entered, ordered
		return true
	},
	"agent refused": func(w *world) bool {
		ok := w.accepted()
		if ok {
			w.reportedAccepted, w.agentLate = false, false
		}
		return ok
	},
	"agent breaks": func(w *world) bool {
		ok := w.agent == PodReady
		w.badAgent = true
		w.agent = or(ok, PodFailed, w.agent)
		return ok
	},
}

func or[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// lose deletes the GPUNode and everything that it owns. It is recreated at once, empty.
func lose(w *world) bool {
	*w = world{
		wanted: w.wanted, wantedMIG: w.wantedMIG, unmanaged: w.unmanaged, sandbox: w.sandbox, noAgent: w.noAgent, paused: w.paused,
		plugin: w.plugin, oldKubelet: w.oldKubelet, conflict: w.conflict, ready: w.ready, cordoned: w.cordoned, gone: w.gone, noDriver: w.noDriver, setGone: w.setGone,
		host: w.host, refuse: w.refuse, kernel: w.kernel, reloads: w.reloads, driverInUse: w.driverInUse, driverUID: w.driverUID, lastID: w.lastID, boot: w.boot,
		labelDriver: w.labelDriver, labelAgent: w.labelAgent, labelToolkit: w.labelToolkit, labelReady: w.labelReady, labelMaint: w.labelMaint,
		driver: w.driver, driverDigest: w.driverDigest, driverLate: w.driverLate, agent: w.agent, toolkit: w.toolkit, cdi: w.cdi,
		operation: or(w.operation == PodAbsent, PodAbsent, PodTerminating), loaded: w.loaded, mode: w.mode, gate: w.gate,
		user: w.user, prepared: w.prepared, blocked: w.blocked, waited: w.waited, unreadable: w.unreadable,
		badDriver: w.badDriver, badAgent: w.badAgent, badCheck: w.badCheck, badMode: w.badMode, voidMode: w.voidMode, budget: w.budget,
	}
	return true
}
