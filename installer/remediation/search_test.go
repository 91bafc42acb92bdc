package remediation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/tests/statespace"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// perform executes a decision like the installer.
func perform(w *world, c *card, d Decision) {
	switch d.Action {
	case Wait:
	case Direct:
		c.order, c.orderID = d.Order.Step, d.Order.ID
		if d.Order.Step == v1alpha1.OrderReset {
			c.proved = false
		}
	case Evict:
		if c.user != phase.PodAbsent && !w.blocked && !w.stays {
			c.user = phase.PodTerminating
		}
	case Validate:
		claim(c, d)
		c.begun = false
	case EndValidate:
		c.check, c.checkID, c.begun, c.started, c.checkLate = phase.ValidationNone, "", false, false, false
	case Release:
		record(c, d)
		c.order, c.orderID, c.touched = "", "", false
	}
}

// halves are the first writes of actions with two writes, as after a crash or an error between them.
var halves = map[Action]func(*card, Decision){Release: record, Validate: claim}

// claim is the first half of Validate.
func claim(c *card, _ Decision) {
	if c.check == phase.ValidationNone {
		c.check, c.checkID, c.begun, c.started, c.checkLate = phase.ValidationRunning, c.orderID, true, false, false
	}
}

// record is the first half of Release.
func record(c *card, d Decision) {
	r := d.Record
	if r == nil || r.ID == c.recordID {
		return
	}
	c.records = [3]v1alpha1.RemediationOutcome{r.Outcome, c.records[0], c.records[1]}
	c.recordReset = [3]bool{r.Attempts > 0, c.recordReset[0], c.recordReset[1]}
	c.recordBusy = [3]bool{r.Reason == ReasonNodeBusy, c.recordBusy[0], c.recordBusy[1]}
	c.recordBoot = [3]uint8{bootNumber(r.BootID), c.recordBoot[0], c.recordBoot[1]}
	c.recordID, c.rested, c.owed = r.ID, false, false
}

// begins reports whether a decision starts a remediation.
func begins(c *card, d Decision) bool {
	return d.Status != nil && d.Status.ID != "" && d.Status.ID != c.id && c.order == ""
}

// writeStatus writes the status if it changed.
func writeStatus(w *world, c *card, d Decision) bool {
	before := *c
	s := d.Status
	if s == nil {
		c.has, c.step, c.reason, c.id, c.attempts, c.about, c.began, c.late, c.requestedBoot = false, "", "", "", 0, "", false, false, 0
		return *c != before
	}
	if begins(c, d) {
		c.owed, c.proved = true, false
	}
	if s.ID != c.id && s.ID != c.orderID && s.ID != "" {
		w.turn = (w.turn + 1) % turns
	}
	c.late = c.late && s.Since == since(true)
	c.has, c.step, c.reason, c.id, c.attempts, c.began = true, s.Step, s.Reason, s.ID, s.Attempts, s.Began != nil
	c.about, c.requestedBoot = strings.Join(s.Faults, ","), bootNumber(s.BootID)
	return *c != before
}

// install is one reconcile of the installer for a GPU: it writes the status if it changed, otherwise it performs the action.
func install(w *world, i int, d Decision) {
	if c := &w.cards[i]; !writeStatus(w, c, d) {
		perform(w, c, d)
	}
}

// scenario is the initial state of a search and its possible disturbances.
type scenario struct {
	name     string
	start    world
	disturbs []string
	// outcome is the result of the first GPU's remediation without disturbances.
	outcome v1alpha1.RemediationOutcome
}

// search is an explicit-state breadth-first search of everything that can happen in a scenario.
type search struct {
	scenario
	*statespace.Space[world]
	table []rule
	// ends are states from which a fair environment is proven to settle.
	ends map[world]bool
}

type finding = statespace.Finding[world]

// longest is the maximum number of steps until a fair environment settles or reaches a visited state.
const longest = 1000

// run visits every state and returns the first violation.
func (s *search) run() *finding {
	s.Space, s.ends = statespace.New(s.name, s.start), map[world]bool{}
	for i, w := range s.All() {
		if name := s.violated(&w); name != "" {
			return s.Finding(name, i, w)
		}
		if f := s.settles(i, w); f != nil {
			return f
		}
		s.expand(i, w)
	}
	return nil
}

// next evaluates the budget only where it matters: for a start.
func (s *search) next(w *world, i int) Decision {
	o := w.observe(i)
	o.Granted = true
	d := decide(&o, s.table)
	if d.Action != Direct || w.cards[i].order != "" || w.granted(i, s.table) {
		return d
	}
	o.Granted = false
	return decide(&o, s.table)
}

// violated returns an invariant violated by the next action of the installer for any GPU.
func (s *search) violated(w *world) string {
	if taken(w) > 1 {
		return "more GPUs are taken out than the budget allows"
	}
	for i := range w.cards {
		if !w.cards[i].exists {
			continue
		}
		d := s.next(w, i)
		for _, inv := range invariants {
			if inv.broken(w, &w.cards[i], d) {
				return inv.name
			}
		}
	}
	return ""
}

func describe(d Decision) string {
	if d.Status == nil {
		return fmt.Sprintf("no status, %s", d.Action)
	}
	return fmt.Sprintf("%s %s (%s) %s %s", d.Status.Step, d.Status.Reason, d.Status.ID, d.Action, d.Order.Step)
}

func (s *search) expand(n int, w world) {
	moves := false
	for i := range w.cards {
		if !w.cards[i].exists {
			continue
		}
		d := s.next(&w, i)
		after := w
		install(&after, i, d)
		moves = moves || after != w
		s.Visit(after, n, fmt.Sprintf("installer, GPU %d: %s", i, describe(d)))
		half := w
		if begins := halves[d.Action]; begins != nil && !writeStatus(&half, &half.cards[i], d) {
			begins(&half.cards[i], d)
			s.Visit(half, n, fmt.Sprintf("installer, GPU %d: half of %s", i, d.Action))
		}
		s.late(n, w, i, d)
	}
	for _, m := range progress {
		moves = s.Try(n, w, m.name, m.do) || moves
	}
	// Time passes when no other event is possible; if one is possible, the passing of time is a disturbance.
	if !moves {
		s.Try(n, w, "time passes", timePasses)
	}
	if w.budget == 0 {
		return
	}
	w.budget--
	s.Try(n, w, "time passes too soon", timePasses)
	for _, name := range s.disturbs {
		s.Try(n, w, name, disturbances[name])
	}
}

// late performs a decision that was made before another event, as with outdated caches. It does not write to a GPUNode that has changed, because the
// API server rejects that with a conflict.
func (s *search) late(n int, w world, i int, d Decision) {
	for _, m := range progress {
		after := w
		if d.Action == Wait || writeStatus(&after, &after.cards[i], d) || !m.do(&after) {
			continue
		}
		perform(&after, &after.cards[i], d)
		s.Visit(after, n, m.name+", and the installer late: "+describe(d))
	}
}

// settles follows a fair environment from a state until no event is possible, and checks the final state.
func (s *search) settles(n int, w world) *finding {
	var trail []world
	var path []string
	onTrail := map[world]bool{}
	for !s.ends[w] {
		if len(trail) > longest {
			return s.Finding("the path does not end", n, w)
		}
		if onTrail[w] {
			if name := restless(trail, w); name != "" {
				return s.Finding(name, n, w, path...)
			}
			break
		}
		onTrail[w], trail = true, append(trail, w)
		if name := s.violated(&w); name != "" {
			return s.Finding(name, n, w, path...)
		}
		what := s.fair(&w)
		if what == "" {
			if name := s.dishonest(&w); name != "" {
				return s.Finding(name, n, w, path...)
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

// restless checks an endless cycle: only a GPU that cannot be taken out of service and backs off may have one, or one that fails its validation and
// waits for an administrator in between.
func restless(trail []world, w world) string {
	round := trail[slices.Index(trail, w):]
	if !slices.ContainsFunc(round, func(t world) bool {
		return slices.ContainsFunc(t.cards[:], func(c card) bool {
			stuck := t.blocked || t.stays || t.broken || c.open || c.stubborn && c.remedy == gpu.Restart
			return stuck && c.step == v1alpha1.RemediationStepWaiting && c.reason == ReasonBackoff && c.order == "" ||
				c.awaits() && c.reason == ReasonValidationFailed && (c.badProof || t.unplaced)
		})
	}) {
		return "the path is a cycle"
	}
	if slices.ContainsFunc(round, func(t world) bool {
		return slices.ContainsFunc(t.cards[:], func(c card) bool { return c.gate == v1alpha1.OrderReset && !c.open })
	}) {
		return "the path resets in a cycle"
	}
	return ""
}

// fair performs one event: of the installer first, then of the environment, then the passing of time.
func (s *search) fair(w *world) string {
	before := *w
	for i := range w.cards {
		if !w.cards[i].exists {
			continue
		}
		d := s.next(w, i)
		if install(w, i, d); *w != before {
			return fmt.Sprintf("installer, GPU %d: %s", i, describe(d))
		}
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
