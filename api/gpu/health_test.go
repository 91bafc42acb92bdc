package gpu_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// noon is when the scenarios of these tests begin.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const (
	faulty  = "gpu-0000-1b-00-0"
	other   = "gpu-0000-1c-00-0"
	present = "boot-1"
)

// story runs a scenario on a Health like the agent does: observations are one second apart, and Settle follows each of them.
type story struct {
	tb     testing.TB
	rules  gpu.Rules
	now    time.Time
	boot   string
	uuid   string
	health gpu.Health
	// looked are the last checkups that the GPU answered. held are the devices that claims hold, known whether that list is
	// complete.
	looked map[string]gpu.Checkup
	held   []gpu.Device
	known  bool
}

func begin(tb testing.TB) *story {
	return &story{tb: tb, now: noon, boot: present, uuid: "GPU-1", looked: map[string]gpu.Checkup{}, known: true}
}

func (s *story) after(d time.Duration) { s.now = s.now.Add(d) }

func (s *story) settle() {
	s.health = s.health.Settle(s.rules, gpu.Situation{Now: s.now, Boot: s.boot, Checked: s.looked, Held: s.held, All: s.known})
}

// xid records an XID of the GPU or of one of its MIG devices.
func (s *story) xid(number int, placement ...gpu.Placement) {
	s.after(time.Second)
	e := gpu.Event{GPU: faulty, XID: number, At: s.now}
	if len(placement) > 0 {
		e.Placement = placement[0]
	}
	s.health = s.health.Note(s.rules, e, s.boot)
	s.settle()
}

// look records a checkup in which the given signals are present and all others absent, with all NVLinks up.
func (s *story) look(found ...gpu.Signal) { s.looks(18, found...) }

// looks is look with the given number of NVLinks up.
func (s *story) looks(links int, found ...gpu.Signal) {
	s.after(time.Second)
	c := gpu.Checkup{GPU: faulty, UUID: s.uuid, At: s.now}
	for _, signal := range []gpu.Signal{
		gpu.SignalECC, gpu.SignalRemapPending, gpu.SignalRemapFailed, gpu.SignalRetirePending, gpu.SignalHeat, gpu.SignalPower, gpu.SignalFabric,
		gpu.SignalResetNeeded, gpu.SignalRebootNeeded, gpu.SignalRecovery,
	} {
		c.Conditions = append(c.Conditions, gpu.Condition{Signal: signal, Present: slices.Contains(found, signal)})
	}
	c.Conditions = append(c.Conditions, gpu.Condition{Signal: gpu.SignalNVLink, Links: links})
	s.looked[faulty] = c
	s.health = s.health.Check(s.rules, c, s.boot)
	s.settle()
}

// unanswered records a checkup to which the GPU or the driver did not respond.
func (s *story) unanswered(why gpu.Signal) {
	s.after(time.Second)
	delete(s.looked, faulty)
	s.health = s.health.Check(s.rules, gpu.Checkup{GPU: faulty, Conditions: []gpu.Condition{{Signal: why, Present: true}}, At: s.now}, s.boot)
	s.settle()
}

func (s *story) reset() {
	s.after(time.Second)
	s.health = s.health.Reset([]string{faulty}, s.now, s.boot)
	delete(s.looked, faulty)
}

func (s *story) reboot() {
	s.after(time.Minute)
	s.boot += "1"
	s.looked = map[string]gpu.Checkup{}
	s.settle()
}

// effect lists the faults in effect with their severities.
func (s *story) effect() string {
	var names []string
	for _, f := range s.health.InEffect() {
		names = append(names, fmt.Sprintf("%v %v", f, f.Severity))
	}
	return strings.Join(names, ", ")
}

// is checks which faults are in effect.
func (s *story) is(want string) {
	s.tb.Helper()
	if got := s.effect(); got != want {
		s.tb.Errorf("at %s in effect: %q, want %q", s.now.Sub(noon), got, want)
	}
}

// TestProof checks for every remedy what ends a fault and what does not.
func TestProof(t *testing.T) {
	t.Parallel()
	slice := gpu.Placement{Profile: 19, Start: 0, Size: 1}
	stories := map[string]func(s *story){
		"a reset ends what needs one": func(s *story) {
			s.xid(48)
			s.look()
			s.after(24 * time.Hour)
			s.look()
			s.is("XID 48 Fatal")
			s.reset()
			s.settle()
			s.is("XID 48 Fatal") // the GPU did not respond after the reset yet
			s.look()
			s.is("")
		},
		"a reset before the fault proves nothing": func(s *story) {
			s.look()
			s.reset()
			s.look()
			s.xid(48)
			s.look()
			s.is("XID 48 Fatal")
		},
		"a look from before the reset proves nothing": func(s *story) {
			s.xid(48)
			s.look()
			old := s.looked[faulty]
			s.reset()
			s.looked[faulty] = old
			s.settle()
			s.is("XID 48 Fatal")
		},
		"an XID after the reset needs another": func(s *story) {
			s.xid(48)
			s.reset()
			s.xid(48)
			s.look()
			s.is("XID 48 Fatal")
		},
		"another boot ends what needs a reset": func(s *story) {
			s.xid(48)
			s.reboot()
			s.is("XID 48 Fatal")
			s.look()
			s.is("")
		},
		"what shows in another boot is not over": func(s *story) {
			s.look(gpu.SignalECC)
			s.reboot()
			s.look(gpu.SignalECC)
			s.look(gpu.SignalECC)
			s.is("ecc Critical")
		},
		"a condition that needs a reset and went away by itself is not over": func(s *story) {
			s.look(gpu.SignalRemapPending)
			s.look()
			s.after(24 * time.Hour)
			s.look()
			s.is("remap-pending Critical")
			s.reset()
			s.look()
			s.is("")
		},
		"a reset that helps nothing": func(s *story) {
			s.look(gpu.SignalRemapPending)
			s.reset()
			s.look(gpu.SignalRemapPending)
			s.after(2 * time.Minute)
			s.look(gpu.SignalRemapPending)
			s.look()
			s.is("remap-pending Critical")
		},
		"links that go down and come back": func(s *story) {
			s.look()
			s.looks(16)
			s.is("nvlink Critical")
			s.after(24 * time.Hour)
			s.looks(17)
			s.is("nvlink Critical")
			s.look()
			s.after(28 * time.Second)
			s.look()
			s.is("nvlink Critical")
			s.after(time.Second)
			s.look()
			s.is("")
		},
		"links in MIG mode, where they have no effect": func(s *story) {
			s.look()
			s.looks(16)
			s.looks(gpu.LinksUnused)
			s.is("nvlink Critical")
			s.after(30 * time.Second)
			s.looks(gpu.LinksUnused)
			s.is("")
			s.looks(16)
			s.is("nvlink Critical") // the links were never repaired
		},
		"links that a reset brings back": func(s *story) {
			s.look()
			s.looks(16)
			s.reset()
			s.looks(4) // the links are being trained
			s.looks(17)
			s.is("nvlink Critical")
			s.look()
			s.is("")
		},
		"links that are trained after a reset for something else": func(s *story) {
			s.look()
			s.xid(48)
			s.reset()
			s.looks(4)
			s.is("nvlink Critical")
			s.look()
			s.after(30 * time.Second)
			s.look()
			s.is("")
		},
		"links that a reset does not bring back": func(s *story) {
			s.look()
			s.looks(16)
			s.reset()
			s.looks(16)
			s.after(time.Hour)
			s.looks(16)
			s.is("nvlink Critical")
			s.look() // long after the reset
			s.is("nvlink Critical")
		},
		"a reset does not end what needs a reboot": func(s *story) {
			s.xid(79)
			s.reset()
			s.look()
			s.is("XID 79 Fatal")
			s.reboot()
			s.is("XID 79 Fatal")
			s.look()
			s.is("")
		},
		"a boot whose id is not known proves nothing": func(s *story) {
			s.xid(79)
			s.boot = ""
			s.look()
			s.is("XID 79 Fatal")
		},
		"only another GPU ends what needs one": func(s *story) {
			s.look(gpu.SignalRemapFailed)
			s.reset()
			s.look()
			s.reboot()
			s.look()
			s.is("remap-failed Fatal")
			s.reboot()
			s.uuid = "GPU-2"
			s.look()
			s.is("")
		},
		"another GPU with the same fault": func(s *story) {
			s.look(gpu.SignalRemapFailed)
			s.reboot()
			s.uuid = "GPU-2"
			s.look(gpu.SignalRemapFailed)
			s.is("remap-failed Fatal")
			if f := s.health.Faults[0]; f.UUID != "GPU-2" || f.Count != 1 || !f.Since.Equal(s.now) {
				s.tb.Errorf("the fault of another GPU is not a new one: %+v", f)
			}
		},
		"a GPU that reports its UUID after the event": func(s *story) {
			s.rules.XIDs = map[int]gpu.Judgement{64: {Severity: gpu.Fatal, Remedy: gpu.Replace}}
			s.xid(64)
			s.look()
			s.reboot()
			s.look()
			s.is("XID 64 Fatal")
			s.uuid = "GPU-2"
			s.look()
			s.is("")
		},
		"claims that leave end what needs a restart": func(s *story) {
			s.held = []gpu.Device{{GPU: faulty, Use: gpu.Use{Shape: gpu.MPS}}, {GPU: other, Use: gpu.Use{Shape: gpu.Whole}}}
			s.xid(94)
			s.after(24 * time.Hour)
			s.look()
			s.is("XID 94 Critical")
			s.held, s.known = s.held[1:], false // the list of claims is incomplete
			s.look()
			s.is("XID 94 Critical")
			s.known = true
			s.look()
			s.is("")
		},
		"neighbours do not hold what needs a restart": func(s *story) {
			s.held = []gpu.Device{{GPU: faulty, Use: gpu.Use{Shape: gpu.MIG, Placement: slice}}, {GPU: faulty, Use: gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 19, Start: 1, Size: 1}}}}
			s.xid(94, slice)
			s.is("XID 94 Critical")
			s.held = s.held[1:]
			s.settle()
			s.is("")
		},
		"a GPU that comes back must stay": func(s *story) {
			s.unanswered(gpu.SignalLost)
			s.is("lost Critical")
			s.look()
			s.after(4 * time.Minute)
			s.look()
			s.is("lost Critical")
			s.after(time.Minute)
			s.look()
			s.is("")
		},
		"a GPU that comes back by a reset is well at once": func(s *story) {
			s.unanswered(gpu.SignalLost)
			s.reset()
			s.look()
			s.is("")
		},
		"a driver that answers again is all that was missing": func(s *story) {
			s.unanswered(gpu.SignalDriver)
			s.is("driver Critical")
			s.look()
			s.is("")
		},
		"a fabric that forms": func(s *story) {
			s.look(gpu.SignalFabric)
			s.is("fabric Critical")
			s.look()
			s.after(28 * time.Second)
			s.look()
			s.is("fabric Critical")
			s.after(time.Second)
			s.look()
			s.is("")
		},
		"harmless is never in effect": func(s *story) {
			s.xid(13)
			s.is("")
			if len(s.health.Faults) != 1 {
				s.tb.Errorf("remembered: %+v", s.health.Faults)
			}
		},
		"a fatal after a benign": func(s *story) {
			s.xid(45)
			s.xid(79)
			s.xid(66)
			s.is("XID 79 Fatal, XID 66 Warning")
		},
		"a benign after a fatal": func(s *story) {
			s.xid(79)
			s.xid(45)
			s.xid(66)
			s.is("XID 79 Fatal, XID 66 Warning")
		},
		"a clock that was years ahead": func(s *story) {
			s.after(10 * 365 * 24 * time.Hour)
			s.xid(48)
			s.look(gpu.SignalHeat)
			s.look()
			s.now = noon
			s.look()
			s.is("XID 48 Fatal, heat Warning")
			s.after(5 * time.Minute)
			s.look()
			s.is("XID 48 Fatal")
			s.reset()
			s.look()
			s.is("")
		},
		"the administrator's opinion counts from the next look": func(s *story) {
			s.xid(79)
			s.xid(13)
			s.rules.XIDs = map[int]gpu.Judgement{79: {Severity: gpu.Warning, Remedy: gpu.Reset}, 13: {Severity: gpu.Critical, Remedy: gpu.Reset}}
			s.look()
			s.is("XID 13 Critical, XID 79 Warning")
			s.rules.XIDs = nil
			s.look()
			s.is("XID 79 Fatal")
		},
		"a record of another release": func(s *story) {
			s.health.Faults = []gpu.Fault{{GPU: faulty, Signal: "cosmic", Severity: gpu.Fatal, Remedy: gpu.Reset, Since: noon, Last: noon, Boot: present, Quiet: time.Minute}}
			s.after(24 * time.Hour)
			s.look()
			s.is("cosmic Fatal")
			s.reset()
			s.look()
			s.is("")
		},
	}
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			tell(s)
		})
	}
}

// TestFlapping checks that the quiet period of a condition doubles with each recurrence, up to an hour, and that frequent
// checks of one occurrence do not double it.
func TestFlapping(t *testing.T) {
	t.Parallel()
	s := begin(t)
	quiet := func() time.Duration {
		for _, f := range s.health.Faults {
			if f.Signal == gpu.SignalHeat {
				return f.Quiet
			}
		}
		return 0
	}
	for range 100 {
		s.look(gpu.SignalHeat)
	}
	for _, want := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		for range 3 {
			s.look(gpu.SignalHeat)
		}
		if got := quiet(); got != want {
			t.Fatalf("quiet is %v, want %v", got, want)
		}
		for range 3 {
			s.look()
		}
	}
	s.after(59 * time.Minute)
	s.look()
	s.is("heat Warning")
	s.after(time.Minute)
	s.look()
	s.is("")
	s.look(gpu.SignalHeat)
	if f := s.health.Faults[0]; quiet() != time.Hour || !f.Since.Equal(s.now) || f.Count != 1 {
		t.Errorf("when it recurs it is not a new fault: %+v", f)
	}
	s.look()
	s.after(time.Hour)
	s.look()
	s.after(time.Hour)
	s.look()
	if len(s.health.Faults) != 0 {
		t.Errorf("an hour after it was over it is dropped: %+v", s.health.Faults)
	}
}

// TestFlappingXID checks that the quiet period of an XID that recurs after it was over is doubled.
func TestFlappingXID(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.xid(66)
	s.after(5 * time.Minute)
	s.look()
	s.is("")
	s.xid(66)
	s.after(9 * time.Minute)
	s.look()
	s.is("XID 66 Warning")
	s.after(time.Minute)
	s.look()
	s.is("")
}

func TestLongQuiet(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.rules.Quiet = 3 * time.Hour
	s.look(gpu.SignalHeat)
	s.look()
	s.look(gpu.SignalHeat)
	if f := s.health.Faults[0]; f.Quiet != 3*time.Hour {
		t.Errorf("it came back, and must stay away for %v, want 3h", f.Quiet)
	}
}

// TestFaultTexts checks the texts of a fault.
func TestFaultTexts(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.look()
	s.looks(16)
	s.looks(15)
	s.health = s.health.Note(s.rules, gpu.Event{GPU: faulty, UUID: "GPU-1", XID: 31, At: s.now, Count: 40}, s.boot)
	s.health = s.health.Note(s.rules, gpu.Event{GPU: faulty, UUID: "GPU-1", XID: 31, At: s.now.Add(time.Second), Count: 2}, s.boot)
	want := []gpu.Fault{
		{
			GPU: faulty, UUID: "GPU-1", Signal: gpu.SignalNVLink, Severity: gpu.Critical, Remedy: gpu.Wait, Detail: "15 of 18 links are up",
			Since: noon.Add(2 * time.Second), Last: noon.Add(3 * time.Second), Count: 2, Boot: present, Quiet: 30 * time.Second,
		},
		{
			GPU: faulty, UUID: "GPU-1", Signal: gpu.SignalXID, XID: 31, Remedy: gpu.Restart,
			Since: noon.Add(3 * time.Second), Last: noon.Add(4 * time.Second), Count: 42, Boot: present, Quiet: 5 * time.Minute,
		},
	}
	if diff := cmp.Diff(want, s.health.Faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if got := fmt.Sprint(want[0], " ", want[1]); got != "nvlink XID 31" {
		t.Errorf("they are called %q", got)
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	early, late := begin(t), begin(t)
	early.look(gpu.SignalECC)
	early.xid(48)
	early.reset()
	late.health = late.health.Check(late.rules, gpu.Checkup{GPU: other}, present)
	late.after(time.Minute)
	late.xid(48)
	late.xid(79)
	for name, joined := range map[string]gpu.Health{"early takes late in": early.health.Join(late.health), "late takes early in": late.health.Join(early.health)} {
		var got []string
		for _, f := range joined.Faults {
			got = append(got, fmt.Sprintf("%v since %v last %v", f, f.Since.Sub(noon), f.Last.Sub(noon)))
		}
		want := []string{"ecc since 1s last 1s", "XID 48 since 2s last 1m1s", "XID 79 since 1m2s last 1m2s"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if joined.Links[faulty] != 18 || !joined.Resets[faulty].Equal(noon.Add(3*time.Second)) {
			t.Errorf("%s: links %v, resets %v", name, joined.Links, joined.Resets)
		}
	}
	rebooted := gpu.Health{Boot: "another"}.Join(early.health)
	if rebooted.Boot != "another" || len(rebooted.Faults) != 2 || rebooted.Links != nil || rebooted.Resets != nil {
		t.Errorf("in another boot: %+v", rebooted)
	}
	over := early
	over.look()
	joined := late.health.Join(over.health)
	if got := len(joined.InEffect()); got != 2 {
		t.Errorf("what is over there and was seen later here is in effect, %d of 2 are", got)
	}
}

// TestStoredByOthers checks that a record of a release with other severities, remedies, signals and fields can be read.
func TestStoredByOthers(t *testing.T) {
	t.Parallel()
	const record = `{"faults":[{"gpu":"gpu-a","signal":"cosmic","severity":"Apocalyptic","remedy":"Exorcise","since":"2026-11-22T12:00:00Z","last":"2026-11-22T12:00:00Z","count":1,"boot":"b","quiet":1,"colour":"red"}],"boot":"b"}`
	var h gpu.Health
	if err := json.Unmarshal([]byte(record), &h); err != nil {
		t.Fatal(err)
	}
	if f := h.Faults[0]; f.Severity != gpu.Critical || f.Remedy != gpu.Reset {
		t.Errorf("read as %v, %v", f.Severity, f.Remedy)
	}
	h = h.Settle(gpu.Rules{}, gpu.Situation{Now: noon.Add(time.Hour), Boot: "b"})
	if got := h.InEffect(); len(got) != 1 || got[0].Severity != gpu.Critical {
		t.Errorf("in effect: %+v", got)
	}
}

// TestExcessFaultsAreDropped checks that dropping faults beyond the limit improves no device. In the scenario every fault exists on the
// left half of the GPU, one on the right half, and the whole GPU is hot.
func TestExcessFaultsAreDropped(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.health = s.health.Check(s.rules, gpu.Checkup{GPU: faulty, UUID: "GPU-1", At: s.now, Conditions: []gpu.Condition{{Signal: gpu.SignalHeat, Present: true}}}, s.boot)
	s.after(time.Second)
	s.health = s.health.Note(s.rules, gpu.Event{GPU: faulty, XID: 94, Placement: gpu.Placement{Profile: 19, Start: 6, Size: 1}, At: s.now}, s.boot)
	for _, number := range []int{46, 48, 62, 64, 95, 110, 119, 120, 140, 143, 158, 167, 169, 31} {
		for start := range 4 {
			for _, size := range []int{1, 2} {
				s.after(time.Second)
				s.health = s.health.Note(s.rules, gpu.Event{GPU: faulty, XID: number, Placement: gpu.Placement{Profile: size, Start: start, Size: size}, At: s.now}, s.boot)
			}
		}
	}
	if len(s.health.Faults) != 64 {
		t.Errorf("%d faults are remembered, want 64", len(s.health.Faults))
	}
	g := gpu.GPU{Faults: s.health.Faults}
	for use, want := range map[gpu.Use]string{mig(19, 5, 1): "[heat]", mig(19, 6, 1): "[XID 94 heat]"} {
		if got := fmt.Sprint(g.FaultsAffecting(use)); got != want {
			t.Errorf("%v: %s, want %s", use, got, want)
		}
	}
	for start := range 4 {
		if got := g.FaultsAffecting(mig(19, start, 1)); len(got) == 0 || got[0].Severity != gpu.Fatal {
			t.Errorf("slice %d: %v", start, got)
		}
	}
}
