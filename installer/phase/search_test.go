package phase

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/tests/statespace"
)

// perform executes a decision like the installer.
func perform(w *world, d Decision) {
	switch d.Action {
	case Wait:
	case Place:
		w.labelDriver, w.labelAgent, w.labelToolkit, w.labelReady = number(d.Labels.Driver), d.Labels.Agent != "", d.Labels.Toolkit, d.Labels.Ready
		w.labelMaint = v1alpha1.Operation(d.Labels.Maintenance)
	case KeepHost:
		w.spec = numberOf(d.Driver)
	case Adopt:
		w.spec, w.lastGood = numberOf(d.Driver), or(d.Good, numberOf(d.Driver), w.lastGood)
	case Taint:
		w.tainted = true
	case Untaint:
		w.tainted = false
	case Enter:
		w.entered, w.op = or[uint8](w.lastID == 1, 2, 1), d.Maintenance.Operation
		w.lastID, w.provenNow, w.agentNew = w.entered, false, false
	case Leave:
		w.entered, w.op = 0, ""
	case Evict:
		if w.user != PodAbsent && !w.blocked {
			w.user = PodTerminating
		}
	case Operate:
		w.operation, w.operationLate = PodStarting, false
	case EndOperate:
		w.operation = PodTerminating
	case Validate:
		performClaim(w, d)
		w.begun = false
	case EndValidate:
		w.check, w.begun, w.leftover, w.checkLate = ValidationNone, false, false, false
	case Record:
		w.lastGood, w.proven, w.provenNow, w.provenBoot, w.provenDriver = w.spec, true, true, w.boot, or(w.spec == 9, 0, w.spec)
		if d.Attempt == nil {
			w.attempt, w.attempts, w.attemptMIG, w.attemptReason, w.attemptStep = 0, 0, false, "", false
		}
	case RollBack:
		performAttempt(w, d)
		w.spec, w.mig, w.restart = numberOf(d.Driver), d.MIGMode != "", 0
	}
}

// halves are the first writes of actions with two writes, as after a crash or an error between them.
var halves = map[Action]func(*world, Decision){RollBack: performAttempt, Validate: performClaim}

// performAttempt is the first half of RollBack.
func performAttempt(w *world, d Decision) {
	if a := d.Attempt; a != nil {
		w.attemptMIG = strings.HasPrefix(a.Digest, "mig")
		w.attempt = or(w.attemptMIG, 0, number(strings.TrimPrefix(a.Digest, MIGAttempt(v1alpha1.MIGEnabled))))
		w.attempts, w.attemptReason, w.attemptStep = min(3, uint8(a.Count)), a.Reason, true
	}
}

// performClaim is the first half of Validate.
func performClaim(w *world, _ Decision) {
	if w.check == ValidationNone {
		w.check, w.begun, w.checkLate = ValidationRunning, true, false
	}
}

// install is one reconcile of the installer: it writes the status if it changed, otherwise it performs the action.
func install(w *world, d Decision) {
	if writeStatus(w, d) {
		return
	}
	perform(w, d)
}

// writeStatus writes phase, step and reason to the status if they differ.
func writeStatus(w *world, d Decision) bool {
	wantsRestart := uint8(slices.Index(podUIDs, d.DriverRestart))
	if w.phase == d.Phase && w.step == d.Step && w.reason == d.Reason && w.wantsRestart == wantsRestart {
		return false
	}
	w.wantsRestart = wantsRestart
	if w.phase != d.Phase || w.step != d.Step {
		w.late, w.attemptStep = false, false
	}
	w.phase, w.step, w.reason = d.Phase, d.Step, d.Reason
	return true
}

// scenario is the initial state of a search and its possible disturbances.
type scenario struct {
	name     string
	start    world
	disturbs []string
	// smooth: without disturbances the wanted state is reached in the end.
	smooth bool
}

// search is an explicit-state breadth-first search of everything that can happen in a scenario.
type search struct {
	scenario
	*statespace.Space[world]
	table []rule
	// ends are states from which a fair environment is proven to settle.
	ends map[world]bool
	// broken has the violations caused by late actions of the installer.
	broken *finding
}

type finding = statespace.Finding[world]

// run visits every state and returns the first violation.
func (s *search) run() *finding {
	s.Space, s.ends = statespace.New(s.name, s.start), map[world]bool{}
	for i, w := range s.All() {
		d := s.next(&w)
		if name := violated(&w, d); name != "" {
			return s.Finding(name, i, w)
		}
		if f := s.settles(i, w); f != nil {
			return f
		}
		s.expand(i, w, d)
		if s.broken != nil {
			return s.broken
		}
	}
	return nil
}

func (s *search) next(w *world) Decision {
	o := w.observe()
	return decide(&o, s.table)
}

func (s *search) expand(i int, w world, d Decision) {
	after := w
	install(&after, d)
	s.Visit(after, i, fmt.Sprintf("installer: %s/%s %s %s", d.Phase, d.Step, d.Reason, d.Action))
	half := w
	if begins := halves[d.Action]; begins != nil && !writeStatus(&half, d) {
		begins(&half, d)
		s.Visit(half, i, "installer: half of "+string(d.Action))
	}
	moves := false
	for _, m := range progress {
		moves = s.Try(i, w, m.name, m.do) || moves
		s.late(i, w, d, m)
	}
	// Time passes when no other event is possible; if one is possible, the passing of time is a disturbance.
	if after == w && !moves {
		s.Try(i, w, "time passes", timePasses)
	}
	if w.budget == 0 {
		return
	}
	w.budget--
	s.Try(i, w, "time passes too soon", timePasses)
	for _, name := range s.disturbs {
		s.Try(i, w, name, disturbances[name])
		s.late(i, w, d, move{name, disturbances[name]})
	}
}

// late performs a decision that was made before another event, as with outdated caches. It does not write to a GPUNode that has changed, because the
// API server rejects that with a conflict.
func (s *search) late(i int, w world, d Decision, m move) {
	after := w
	if d.Action == Wait || writeStatus(&after, d) || !m.do(&after) {
		return
	}
	switch d.Action {
	case KeepHost, Adopt, Enter, Leave, Record, RollBack:
		return
	case Wait, Place, Taint, Untaint, Evict, Operate, EndOperate, Validate, EndValidate:
	}
	for _, inv := range invariants {
		if inv.always && inv.broken(&after, d) && s.broken == nil {
			s.broken = s.Finding(inv.name+", acting late", i, after, m.name, fmt.Sprintf("installer, late: %s %s", d.Reason, d.Action))
		}
	}
	perform(&after, d)
	s.Visit(after, i, m.name+", and the installer late: "+string(d.Action))
}

// settles follows a fair environment from a state until no event is possible, and checks the final state.
func (s *search) settles(i int, w world) *finding {
	var trail []world
	var path []string
	onTrail := map[world]bool{}
	became := 0
	for steps := 0; ; steps++ {
		if s.ends[w] {
			break
		}
		if onTrail[w] && resting(trail, w) {
			if name := dishonest(&w); name != "" {
				return s.Finding(name, i, w, path...)
			}
			break
		}
		if onTrail[w] || steps > 400 {
			return s.Finding("the path is a cycle", i, w, path...)
		}
		onTrail[w] = true
		trail = append(trail, w)
		d := s.next(&w)
		if name := violated(&w, d); name != "" {
			return s.Finding(name, i, w, path...)
		}
		before, spec, mig := w.phase, w.spec, w.mig
		what := s.fair(&w, d)
		if w.spec != spec || w.mig != mig {
			became = 0 // another driver is granted, or given up
		}
		if w.phase == v1alpha1.PhaseReady && before != w.phase {
			if became++; became > 1 {
				return s.Finding("Ready comes and goes in a fair environment", i, w, path...)
			}
		}
		if what == "" {
			if name := dishonest(&w); name != "" {
				return s.Finding(name, i, w, path...)
			}
			if w.budget == s.start.budget && s.smooth && (w.phase != v1alpha1.PhaseReady || w.spec != w.wanted && w.spec != 9) {
				return s.Finding("without obstacles the desired operands do not run", i, w, path...)
			}
			break
		}
		path = append(path, "fair: "+what)
	}
	for _, t := range trail {
		s.ends[t] = true
	}
	return nil
}

// resting reports whether an endless cycle is that of a node that stays Failed and retries after a delay.
func resting(trail []world, w world) bool {
	round := trail[slices.Index(trail, w):]
	return !slices.ContainsFunc(round, func(t world) bool { return t.phase != v1alpha1.PhaseFailed }) &&
		slices.ContainsFunc(round, func(t world) bool { return t.checkLate })
}

// fair performs one event: of the installer first, then of the environment, then the passing of time.
func (s *search) fair(w *world, d Decision) string {
	before := *w
	if install(w, d); *w != before {
		return fmt.Sprintf("installer: %s/%s %s %s", d.Phase, d.Step, d.Reason, d.Action)
	}
	for _, m := range progress {
		if m.do(w) {
			return m.name
		}
	}
	if timePasses(w) {
		return "time passes"
	}
	return ""
}
