package prepare

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// scenario is a claim in its surroundings.
type scenario struct {
	machine string
	sandbox bool
	// intruders are made by an administrator, neighbours are prepared, before anything else.
	intruders  func(w *world) []Wanted
	neighbours func(w *world) []Claim
	claim      func(w *world) Claim
}

var scenarios = map[string]scenario{
	"whole GPU": {
		machine: "h100x2",
		claim:   func(w *world) Claim { return claim("a", w.whole(0)) },
	},
	"whole GPU that was left with MIG on": {
		machine:   "h100x2",
		intruders: func(w *world) []Wanted { w.leaveOn(0); return nil },
		claim:     func(w *world) Claim { return claim("a", w.whole(0)) },
	},
	"whole GPU with a time slice": {
		machine: "h100x2",
		claim: func(w *world) Claim {
			c := claim("a", w.whole(1))
			c.Wanted[0].Settings.TimeSlice = "Long"
			return c
		},
	},
	"GPU without MIG": {
		machine: "t4x1",
		claim:   func(w *world) Claim { return claim("a", w.whole(0)) },
	},
	"first slice of a GPU": {
		machine: "h100x2",
		claim:   func(w *world) Claim { return claim("a", w.slice(0, 19, 3)) },
	},
	"MIG device with neighbours": {
		machine: "h100x2",
		neighbours: func(w *world) []Claim {
			return []Claim{claim("b", w.slice(0, 19, 0), w.slice(0, 19, 2)), claim("c", w.whole(1))}
		},
		claim: func(w *world) Claim { return claim("a", w.slice(0, 9, 4)) },
	},
	"MIG device with a foreign one": {
		machine:   "h100x2",
		intruders: func(w *world) []Wanted { return []Wanted{w.slice(0, 14, 0), w.slice(0, 19, 6)} },
		claim:     func(w *world) Claim { return claim("a", w.slice(0, 19, 3)) },
	},
	"slices and a whole GPU": {
		machine: "h100x2",
		claim: func(w *world) Claim {
			return claim("a", w.slice(1, 14, 0), w.whole(0), w.slice(1, 9, 4))
		},
	},
	"slice on Ampere": {
		machine: "a30x4l40sx4",
		claim:   func(w *world) Claim { return claim("a", w.slice(0, 14, 0), w.slice(1, 5, 2)) },
	},
	"time share": {
		machine: "h100x2",
		claim:   func(w *world) Claim { return claim("a", w.share(0, gpu.TimeShare, 10, 0)) },
	},
	"time share with an interval": {
		machine:   "h100x2",
		intruders: func(w *world) []Wanted { w.leaveOn(0); return nil },
		claim:     func(w *world) Claim { return claim("a", w.share(0, gpu.TimeShare, 10, 0).timed("Short")) },
	},
	"time share with one of another interval": {
		machine: "a30x4l40sx4",
		neighbours: func(w *world) []Claim {
			return []Claim{claim("b", w.share(4, gpu.TimeShare, 10, 0).timed("Long")), claim("c", w.share(4, gpu.TimeShare, 5, 0))}
		},
		claim: func(w *world) Claim { return claim("a", w.share(4, gpu.TimeShare, 10, 0).timed("Short")) },
	},
	"GPUs for a virtual machine": {
		machine: "t4x1", // no MIG that anybody could see
		sandbox: true,
		claim:   func(w *world) Claim { return claim("a", w.wanted(0, gpu.Use{Shape: gpu.VFIO})) },
	},
	"first MPS share": {
		machine: "h100x2",
		claim:   func(w *world) Claim { return claim("a", w.share(0, gpu.MPS, 20, 25)) },
	},
	"MPS share with others": {
		machine: "h100x2",
		neighbours: func(w *world) []Claim {
			return []Claim{claim("b", w.share(0, gpu.MPS, 40, 50)), claim("c", w.share(0, gpu.MPS, 10, 0))}
		},
		claim: func(w *world) Claim { return claim("a", w.share(0, gpu.MPS, 20, 25)) },
	},
	"two shares of one GPU and a share of another": {
		machine: "h100x2",
		claim: func(w *world) Claim {
			first, second := w.share(0, gpu.MPS, 20, 25), w.share(0, gpu.MPS, 20, 25)
			second.ShareID = "second"
			return claim("a", first, second, w.share(1, gpu.TimeShare, 1, 0))
		},
	},
	"whole GPUs with one daemon": {
		machine: "h100x2",
		claim: func(w *world) Claim {
			return claim("a", w.whole(0).served(50), w.whole(1).served(50))
		},
	},
	"whole GPUs with one daemon and different limits": {
		machine: "h100x2",
		claim: func(w *world) Claim {
			return claim("a", w.whole(0).served(50).limited(1<<30), w.whole(1).served(50).limited(2<<30))
		},
	},
	"slices with daemons of their own": {
		machine: "h100x2",
		claim: func(w *world) Claim {
			return claim("a", w.slice(0, 19, 0).served(0), w.slice(0, 14, 2).served(30))
		},
	},
	"watching a neighbour": {
		machine:    "h100x2",
		neighbours: func(w *world) []Claim { return []Claim{claim("b", w.slice(0, 19, 0))} },
		claim: func(w *world) Claim {
			c := claim("a", w.slice(0, 19, 0), w.wanted(1, gpu.Use{Shape: gpu.Monitor}))
			c.Wanted[0].Admin, c.Wanted[1].Admin = true, true
			return c
		},
	},
}

// trial is one run of a scenario.
type trial struct {
	*world
	t *testing.T
	scenario
	faults []string
}

func (s scenario) try(t *testing.T) *trial {
	t.Helper()
	return s.tryIn(t, newWorld(t, s.machine))
}

func (s scenario) tryIn(t *testing.T, w *world) *trial {
	t.Helper()
	r := &trial{world: w, t: t, scenario: s}
	r.world.sandbox = s.sandbox
	if s.intruders != nil {
		for _, w := range s.intruders(r.world) {
			if _, err := r.intrude(w); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range r.others() {
		if _, err := r.process(t, nil).Prepare(quiet(t), c); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *trial) others() []Claim {
	if r.neighbours == nil {
		return nil
	}
	return r.neighbours(r.world)
}

// operation is something that an agent does for the scenario's claim.
type operation func(r *trial, p *Preparer) error

func prepareIt(r *trial, p *Preparer) error {
	c := r.claim(r.world)
	answers, err := p.Prepare(quiet(r.t), c)
	if err == nil && len(answers) != len(c.Wanted) {
		return fmt.Errorf("%d answers for %d devices", len(answers), len(c.Wanted))
	}
	return err
}

func unprepareIt(r *trial, p *Preparer) error {
	return p.Unprepare(quiet(r.t), r.claim(r.world).Ref)
}

func reconcileIt(r *trial, p *Preparer) error {
	claims, err := p.storedClaims()
	if err != nil {
		return err
	}
	// Claim by claim on this goroutine, where the kill is caught.
	for _, c := range claims {
		if err := p.reconcile(quiet(r.t), c, nil); err != nil {
			return err
		}
	}
	return p.releaseOrphanDaemons(quiet(r.t))
}

// events runs the operation and returns what the observer was told: before and after every step.
func (r *trial) events(do operation) []string {
	r.t.Helper()
	var events []string
	p := r.process(r.t, func(when When, _ Ref, s Step) { events = append(events, string(when)+" "+s.String()) })
	r.must("clean run", do(r, p))
	return events
}

// kill runs the operation in an agent that dies at the event with the number.
func (r *trial) kill(do operation, number int) {
	count := 0
	p := r.process(r.t, func(When, Ref, Step) {
		if count++; count > number {
			panic(killed{})
		}
	})
	dead, err := survive(func() error { return do(r, p) })
	if !dead {
		r.faults = append(r.faults, fmt.Sprintf("was to be killed at event %d: %v", number, err))
	}
	r.check("after the kill")
}

func (r *trial) must(what string, err error) {
	if err != nil {
		r.faults = append(r.faults, what+": "+err.Error())
	}
}

func (r *trial) check(when string) {
	for _, fault := range r.world.faults() {
		r.faults = append(r.faults, when+": "+fault)
	}
}

// state returns the state of the scenario's claim; empty without a record.
func (r *trial) state() State { return r.records.kept[r.claim(r.world).UID].State }

// end takes every claim back and looks for what is left.
func (r *trial) end() {
	p := r.process(r.t, nil)
	for _, c := range append(r.others(), r.claim(r.world)) {
		r.must("end of "+c.Name, p.Unprepare(quiet(r.t), c.Ref))
	}
	for _, left := range r.litter() {
		r.faults = append(r.faults, "at the end: "+left)
	}
}

// aftermaths are what may follow a crash. Each ends with the claim as it should be.
var aftermaths = map[string]func(r *trial){
	"prepared again": func(r *trial) {
		r.must("prepare again", prepareIt(r, r.process(r.t, nil)))
		r.wants(StatePrepared)
	},
	"unprepared": func(r *trial) {
		r.must("unprepare", unprepareIt(r, r.process(r.t, nil)))
		r.wants("")
	},
	"reconciled": func(r *trial) {
		_, damaged := r.records.unreadable[r.claim(r.world).UID]
		_, specified := r.specs.kept[r.claim(r.world).UID]
		settled := r.state() == StatePrepared || r.state() == "" && damaged && specified
		r.must("reconcile", r.process(r.t, nil).Reconcile(quiet(r.t)))
		if settled {
			r.wants(StatePrepared)
		} else {
			r.wants("")
		}
		r.must("prepare after reconcile", prepareIt(r, r.process(r.t, nil)))
		r.wants(StatePrepared)
	},
	"rebooted": func(r *trial) {
		r.reboot()
		r.must("reconcile after boot", r.process(r.t, nil).Reconcile(quiet(r.t)))
		r.wants("")
		if len(r.records.kept) > 0 {
			r.faults = append(r.faults, "records of another boot are left")
		}
		for _, c := range r.others() {
			_, err := r.process(r.t, nil).Prepare(quiet(r.t), c)
			r.must("neighbour after boot", err)
		}
		r.must("prepare after boot", prepareIt(r, r.process(r.t, nil)))
		r.wants(StatePrepared)
	},
}

func (r *trial) wants(state State) {
	r.check("aftermath")
	if got := r.state(); got != state {
		r.faults = append(r.faults, fmt.Sprintf("aftermath: the claim is %q, want %q", got, state))
	}
}

// crashes tries every crash of the scenario: the agent dies at each event of preparing and unpreparing,
// and what follows is each of the aftermaths, or one of the operations that dies again at each of its
// own events. It returns the cases tried and what went wrong, by case. The world may be spoiled first.
func (s scenario) crashes(t *testing.T, spoil func(*world), twice map[string]operation) (tried int, faults []string) {
	t.Helper()
	start := func(prepared bool) *trial {
		r := s.try(t)
		if prepared {
			r.must("prepare", prepareIt(r, r.process(t, nil)))
		}
		spoil(r.world)
		return r
	}
	count := func(r *trial, name string) {
		r.end()
		tried++
		for _, fault := range r.faults {
			faults = append(faults, name+": "+fault)
		}
	}
	operations := []struct {
		name     string
		prepared bool
		do       operation
	}{
		{"prepare", false, prepareIt}, {"prepare again", true, prepareIt}, {"unprepare", true, unprepareIt},
	}
	for _, op := range operations {
		events := start(op.prepared).events(op.do)
		if len(events) == 0 {
			t.Fatalf("%s has no steps", op.name)
		}
		for number, event := range events {
			for after, follow := range aftermaths {
				r := start(op.prepared)
				r.kill(op.do, number)
				follow(r)
				count(r, fmt.Sprintf("%s killed %s, then %s", op.name, event, after))
			}
			for name, second := range twice {
				first := start(op.prepared)
				first.kill(op.do, number)
				for again, next := range first.events(second) {
					r := start(op.prepared)
					r.kill(op.do, number)
					r.kill(second, again)
					aftermaths["prepared again"](r)
					count(r, fmt.Sprintf("%s killed %s, then %s killed %s", op.name, event, name, next))
				}
			}
		}
	}
	return tried, faults
}

// TestKillAtEveryStep kills the agent before and after every step that its own plan lists, in every
// scenario. The claim ends prepared or cleanly taken back, nothing leaks, no other claim is touched.
func TestKillAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried, faults := s.crashes(t, func(*world) {}, nil)
			report(t, tried, faults)
		})
	}
}

// TestKillAfterDamage damages the record of a claim that is ready, or is being made so, before the agent
// is killed.
func TestKillAfterDamage(t *testing.T) {
	t.Parallel()
	s := scenarios["MIG device with neighbours"]
	tried, faults := s.crashes(t, func(w *world) { w.damage(s.claim(w)) }, nil)
	report(t, tried, faults)
}

// TestKillTwice kills the agent that follows a killed one, too.
func TestKillTwice(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"MIG device with neighbours", "slices and a whole GPU"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried, faults := scenarios[name].crashes(t, func(*world) {}, map[string]operation{
				"prepare": prepareIt, "unprepare": unprepareIt, "reconcile": reconcileIt,
			})
			report(t, tried, faults)
		})
	}
}

func report(t *testing.T, tried int, faults []string) {
	t.Helper()
	t.Logf("%d cases tried, %d faults", tried, len(faults))
	for i, fault := range faults {
		if i == 10 {
			t.Fatalf("and %d more", len(faults)-i)
		}
		t.Error(fault)
	}
}

// TestKillsDetectMissingRecord spoils the crash safety: the record before the first side effect is not
// written, or the one before the first thing is taken away. The kills must notice.
func TestKillsDetectMissingRecord(t *testing.T) {
	t.Parallel()
	for _, state := range []State{StatePreparing, StateUnpreparing} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			_, faults := scenarios["MIG device with neighbours"].crashes(t, func(w *world) {
				w.records.drop = func(r Record) bool { return r.State == state }
			}, nil)
			if len(faults) == 0 {
				t.Errorf("without the record %s every kill is survived: the kills prove nothing", state)
			}
			t.Logf("%d faults, such as: %s", len(faults), faults[0])
		})
	}
}

// TestEveryCallFailsOnce fails every call of a clean run once, before or after it took effect, with
// each kind of error; the same call of kubelet again puts it right.
func TestEveryCallFailsOnce(t *testing.T) {
	t.Parallel()
	kinds := map[string]error{"broken": errors.New("broken"), "busy": gpu.ErrBusy, "lost": gpu.ErrLost}
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried, faults := 0, []string(nil)
			for _, op := range []struct {
				name     string
				prepared bool
				do       operation
			}{{"prepare", false, prepareIt}, {"prepare again", true, prepareIt}, {"unprepare", true, unprepareIt}} {
				calls := s.calls(t, op.prepared, op.do)
				for number, call := range calls {
					for kind, err := range kinds {
						for _, effect := range []bool{false, true} {
							r := s.try(t)
							if op.prepared {
								r.must("prepare", prepareIt(r, r.process(t, nil)))
							}
							r.failOnce(number, effect, err)
							p := r.process(t, nil)
							first := op.do(r, p)
							r.check("after the failure")
							r.before, r.after = nil, nil
							if first == nil && op.name != "unprepare" {
								r.wants(StatePrepared)
							}
							r.must("again", op.do(r, p))
							if op.name == "unprepare" {
								r.must("reconcile", p.Reconcile(quiet(t)))
								r.wants("")
							} else {
								r.wants(StatePrepared)
							}
							r.end()
							tried++
							for _, fault := range r.faults {
								if op.name == "unprepare" && strings.HasSuffix(fault, "MIG is on, without claims") {
									// Turning MIG off again is tried once: it must not hold up a claim.
									continue
								}
								faults = append(faults, fmt.Sprintf("%s, %s %s, effect %v: %s", op.name, call, kind, effect, fault))
							}
						}
					}
				}
			}
			report(t, tried, faults)
		})
	}
}

// calls returns every call of a port that the operation makes.
func (s scenario) calls(t *testing.T, prepared bool, do operation) []string {
	t.Helper()
	r := s.try(t)
	if prepared {
		r.must("prepare", prepareIt(r, r.process(t, nil)))
	}
	var calls []string
	r.before = func(call string) error { calls = append(calls, call); return nil }
	r.must("clean run", do(r, r.process(t, nil)))
	if len(r.faults) > 0 || len(calls) == 0 {
		t.Fatalf("clean run: %d calls, %v", len(calls), r.faults)
	}
	return calls
}

// failOnce fails the call with the number, before or after its effect.
func (r *trial) failOnce(number int, effect bool, err error) {
	count := -1
	r.before = func(string) error {
		if count++; count == number && !effect {
			return err
		}
		return nil
	}
	r.after = func(string) error {
		if count == number && effect {
			return err
		}
		return nil
	}
}

// TestObserverSeesPlannedSteps checks that the steps which the kills run over are the ones that plan lists.
func TestObserverSeesPlannedSteps(t *testing.T) {
	t.Parallel()
	s := scenarios["slices and a whole GPU"]
	r := s.try(t)
	p := r.process(t, nil)
	record := Record{Ref: ref("a"), BootID: p.BootID, Wanted: s.claim(r.world).Wanted}
	steps, err := planPrepare(record, p.readGPUs(quiet(t), record, nil))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, step := range lines(steps) {
		want = append(want, "before "+step, "after "+step)
	}
	if diff := cmp.Diff(want, r.events(prepareIt)); diff != "" {
		t.Errorf("events (-plan +observed):\n%s", diff)
	}
	kinds := map[Kind]bool{}
	for _, s := range scenarios {
		r := s.try(t)
		p := r.process(t, func(_ When, _ Ref, s Step) { kinds[s.Kind] = true })
		r.must("prepare", prepareIt(r, p))
		r.must("unprepare", unprepareIt(r, p))
	}
	for k := RecordPreparing; k <= DeleteRecord; k++ {
		if !kinds[k] {
			t.Errorf("no scenario has a step %v", k)
		}
	}
}
