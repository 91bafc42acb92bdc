package remediation

import (
	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// move is an event outside the installer. It changes the world, or returns false if it does not apply.
type move struct {
	name string
	do   func(w *world) bool
}

// each lifts an event of one GPU to a move of the world.
func each(name string, do func(w *world, c *card) bool) move {
	return move{name, func(w *world) bool {
		for i := range w.cards {
			if w.cards[i].exists && do(w, &w.cards[i]) {
				return true
			}
		}
		return false
	}}
}

// progress has the events that occur without intervention in a fair environment, most urgent first.
var progress = []move{
	{"the agent comes", func(w *world) bool { return !w.broken && set(&w.agent, true) }},
	{"the agent speaks", func(w *world) bool { return w.agent && set(&w.reported, true) }},
	each("the agent looks", agentProbes),
	each("the agent receives the order", agentReceives),
	each("kubelet: user", userMoves),
	each("the agent reports", func(w *world, c *card) bool {
		used := c.prepared || c.started && c.check == phase.ValidationRunning
		return w.agent && c.gate != "" && set(&c.reportedUsed, used)
	}),
	{"kubelet: monitoring", func(w *world) bool {
		away := false
		for i := range w.cards {
			away = away || w.cards[i].has && w.cards[i].step == v1alpha1.RemediationStepReset || w.cards[i].order == v1alpha1.OrderReset
		}
		return w.monitored == away && set(&w.monitored, !away)
	}},
	each("the agent resets", agentResets),
	each("kubelet: proof", proofMoves),
	{"an administrator reboots the node", func(w *world) bool {
		for i := range w.cards {
			c := &w.cards[i]
			if w.rebooter && c.has && c.step == v1alpha1.RemediationStepRebootRequested && c.reason != ReasonRebooted {
				return reboot(w)
			}
		}
		return false
	}},
}

func set(b *bool, value bool) bool {
	changed := *b != value
	*b = value
	return changed
}

// agentProbes reports the faults of this boot and removes ended ones.
func agentProbes(w *world, c *card) bool {
	if !w.agent || !w.reported || c.remedy == noFault {
		return false
	}
	switch {
	case !c.seen && c.remedy <= gpu.Reboot && c.remedy > gpu.Wait && !c.dead:
		c.remedy = noFault // in another boot
	case c.remedy == gpu.Restart && c.user == phase.PodAbsent && !c.stubborn:
		c.remedy = noFault
	default:
		return set(&c.seen, true)
	}
	return true
}

// agentReceives accepts an order: from then on claims are refused, or accepted again.
func agentReceives(w *world, c *card) bool {
	if !w.agent || c.gate == c.order && c.gateID == c.orderID {
		return false
	}
	if c.gateID != c.orderID {
		c.state, c.reportedUsed = "", c.prepared
		if c.order != "" {
			c.state = v1alpha1.RemediationStateHolding
		}
	}
	c.gate, c.gateID = c.order, c.orderID
	return true
}

func agentResets(w *world, c *card) bool {
	if !w.agent || c.gate != v1alpha1.OrderReset {
		return false
	}
	switch {
	case c.state == v1alpha1.RemediationStateHolding && !c.prepared && !c.open:
		c.state, c.touched = v1alpha1.RemediationStateResetting, c.order == c.gate && c.orderID == c.gateID
	case c.state == v1alpha1.RemediationStateResetting && c.hangs:
		return false
	case c.state == v1alpha1.RemediationStateResetting && (c.badReset || w.monitored):
		c.state = v1alpha1.RemediationStateFailed
	case c.state == v1alpha1.RemediationStateResetting:
		c.state = v1alpha1.RemediationStateReset
		if c.remedy <= gpu.Reset && c.remedy > gpu.Wait && !c.stubborn {
			c.remedy = noFault
		}
	default:
		return false
	}
	return true
}

func userMoves(w *world, c *card) bool {
	switch {
	case c.user == phase.PodPending && !c.prepared && w.agent && c.gate == "":
		c.prepared = true
	case c.user == phase.PodPending && c.prepared:
		c.user = phase.PodReady
	case c.user == phase.PodTerminating && (!c.prepared || w.agent):
		c.user, c.prepared = phase.PodAbsent, false
	default:
		return false
	}
	return true
}

func proofMoves(w *world, c *card) bool {
	switch {
	case c.check != phase.ValidationRunning || c.begun || w.unplaced || !w.agent:
		return false
	case !c.started && c.gate == v1alpha1.OrderValidate && c.gateID == c.checkID:
		c.started = true
	case c.started && c.badProof:
		c.check = phase.ValidationFailed
	case c.started:
		c.check, c.proved, c.touched = phase.ValidationPassed, true, false
	default:
		return false
	}
	return true
}

// timePasses expires every pending timeout.
func timePasses(w *world) bool {
	before := *w
	for i := range w.cards {
		c := &w.cards[i]
		c.late, c.rested, c.checkLate = c.has, true, c.check != phase.ValidationNone
	}
	return before != *w
}

func reboot(w *world) bool {
	if w.boot == 3 {
		return false
	}
	w.boot++
	w.agent, w.reported = false, false
	for i := range w.cards {
		c := &w.cards[i]
		c.seen, c.hangs, c.touched = false, false, false
		if c.state == v1alpha1.RemediationStateResetting {
			c.state = v1alpha1.RemediationStateHolding
		}
		if c.user == phase.PodReady {
			c.user, c.prepared = phase.PodPending, false
		}
		if c.user == phase.PodTerminating {
			c.prepared = false
		}
		if c.check == phase.ValidationRunning && !c.begun {
			c.check = phase.ValidationFailed
		}
	}
	return true
}

// on makes a disturbance of an event of the first GPU.
func on(do func(c *card) bool) func(*world) bool {
	return func(w *world) bool { return do(&w.cards[0]) }
}

func falls(r gpu.Remedy) func(*world) bool {
	return on(func(c *card) bool {
		if c.remedy >= r {
			return false
		}
		c.remedy, c.seen = r, true
		return true
	})
}

// The disturbances, by their name in scenarios.
var disturbances = map[string]func(w *world) bool{
	"wait":    falls(gpu.Wait),
	"restart": falls(gpu.Restart),
	"reset":   falls(gpu.Reset),
	"reboot":  falls(gpu.Reboot),
	"replace": falls(gpu.Replace),
	"the other": func(w *world) bool {
		c := &w.cards[1]
		if !c.exists || c.remedy >= gpu.Reset {
			return false
		}
		c.remedy, c.seen = gpu.Reset, true
		return true
	},
	"fault ends":   on(func(c *card) bool { ok := c.remedy != noFault; c.remedy = noFault; return ok }),
	"node reboots": reboot,
	"user comes": func(w *world) bool {
		c := &w.cards[0]
		ok := c.user == phase.PodAbsent && c.remedy == noFault && c.gate == ""
		if ok {
			c.user = phase.PodPending
		}
		return ok
	},
	"late pod":         on(func(c *card) bool { ok := c.user == phase.PodAbsent; c.user = phase.PodPending; return ok }),
	"blocked":          func(w *world) bool { w.blocked = !w.blocked; return true },
	"stays":            func(w *world) bool { w.stays = !w.stays; return true },
	"pause":            func(w *world) bool { w.paused = !w.paused; return true },
	"busy":             func(w *world) bool { w.busy = !w.busy; return true },
	"off":              func(w *world) bool { w.mode = v1alpha1.RemediationOff; return true },
	"suggest":          func(w *world) bool { w.mode = v1alpha1.RemediationSuggest; return true },
	"act":              func(w *world) bool { w.mode = v1alpha1.RemediationAct; return true },
	"reboots disabled": func(w *world) bool { return set(&w.noReboot, true) },
	"agent goes":       func(w *world) bool { return w.agent && set(&w.agent, false) && (set(&w.reported, false) || true) },
	"agent breaks":     func(w *world) bool { w.agent, w.reported = false, false; return set(&w.broken, true) },
	"lose status": on(func(c *card) bool {
		ok := c.has
		c.has, c.step, c.reason, c.id, c.attempts, c.about, c.began, c.late, c.requestedBoot = false, "", "", "", 0, "", false, false, 0
		c.records, c.recordID, c.recordReset, c.recordBusy, c.recordBoot = [3]v1alpha1.RemediationOutcome{}, "", [3]bool{}, [3]bool{}, [3]uint8{}
		c.touched = false
		c.owed = c.order != ""
		return ok
	}),
	"order is taken away": on(func(c *card) bool {
		ok := c.order != ""
		c.order, c.orderID, c.owed, c.touched = "", "", c.owed && c.has, false
		return ok
	}),
	"bad reset":    on(func(c *card) bool { return set(&c.badReset, true) }),
	"reset hangs":  on(func(c *card) bool { return set(&c.hangs, true) }),
	"opens":        on(func(c *card) bool { return set(&c.open, true) }),
	"stubborn":     on(func(c *card) bool { return set(&c.stubborn, true) }),
	"dead":         on(func(c *card) bool { c.dead = true; return set(&c.stubborn, true) }),
	"bad proof":    on(func(c *card) bool { return set(&c.badProof, true) }),
	"unplaced":     func(w *world) bool { return set(&w.unplaced, true) },
	"no validator": func(w *world) bool { return set(&w.noValidator, true) },
}
