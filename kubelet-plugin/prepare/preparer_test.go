package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

func mustPrepare(t *testing.T, p *Preparer, c Claim) []Answer {
	t.Helper()
	answers, err := p.Prepare(quiet(t), c)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

func mustUnprepare(t *testing.T, p *Preparer, c Claim) {
	t.Helper()
	if err := p.Unprepare(quiet(t), c.Ref); err != nil {
		t.Fatal(err)
	}
}

// sound fails the test for everything that is wrong with the world.
func sound(t *testing.T, w *world) {
	t.Helper()
	for _, fault := range w.faults() {
		t.Error(fault)
	}
}

// clean fails the test for everything that is left.
func clean(t *testing.T, w *world) {
	t.Helper()
	for _, left := range w.litter() {
		t.Error("left behind: " + left)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	c := claim("a", w.whole(1), w.slice(0, 9, 4))
	got := mustPrepare(t, p, c)
	instances := w.instances()
	if len(instances) != 1 {
		t.Fatalf("instances: %v, want one", instances)
	}
	parent := w.node.GPUs[0]
	parent.Mode = gpu.ModeEnabled
	want := []Answer{
		{
			Prepared:   Prepared{Result: c.Wanted[0].Result, Use: c.Wanted[0].Use, GPU: w.node.GPUs[1]},
			CDIDevices: []string{"claim/uid-a-" + h1, "common"},
		},
		{
			Prepared:   Prepared{Result: c.Wanted[1].Result, Use: c.Wanted[1].Use, GPU: parent, Instance: &instances[0]},
			CDIDevices: []string{"claim/uid-a-" + h0 + "-mig-9-4", "common"},
		},
	}
	same := cmp.Comparer(func(a, b *gpu.Geometry) bool { return a == b })
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	again := mustPrepare(t, w.process(t, nil), c)
	if diff := cmp.Diff(want, again, same); diff != "" {
		t.Errorf("answers to the second pod (-want +got):\n%s", diff)
	}
	mustUnprepare(t, p, c)
	mustUnprepare(t, p, c)
	clean(t, w)
	if w.records.writes != 5 {
		t.Errorf("%d writes of records: want four in a claim's life, and one delete of nothing", w.records.writes)
	}
}

func TestInvalidClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	watching := w.share(0, gpu.MPS, 1, 0)
	watching.Admin = true
	tests := map[string]struct {
		claim   Claim
		is      error
		message string
	}{
		"daemon of a share":      {claim("a", w.share(0, gpu.TimeShare, 1, 0).served(10)), gpu.ErrUnsupported, "MPS daemon"},
		"daemon of a daemon":     {claim("a", w.share(0, gpu.MPS, 1, 0).served(10)), gpu.ErrUnsupported, "MPS daemon"},
		"time slice under MPS":   {claim("a", w.share(0, gpu.MPS, 1, 0).timed("Short")), gpu.ErrUnsupported, "time slice"},
		"administrator's share":  {claim("a", watching), gpu.ErrUnsupported, "monitor"},
		"path as UID":            {Claim{Ref: Ref{UID: "../../etc/passwd"}, Wanted: []Wanted{w.whole(0)}}, nil, "UID"},
		"no UID":                 {Claim{Wanted: []Wanted{w.whole(0)}}, nil, "UID"},
		"no device":              {claim("a"), nil, "no device"},
		"device twice":           {claim("a", w.whole(0), w.whole(0)), nil, "twice"},
		"monitor without admin":  {claim("a", w.wanted(0, gpu.Use{Shape: gpu.Monitor})), gpu.ErrUnsupported, "adminAccess"},
		"shape of another agent": {claim("a", w.wanted(0, gpu.Use{Shape: gpu.VFIO})), gpu.ErrUnsupported, "vfio"},
		"no shape":               {claim("a", w.wanted(0, gpu.Use{})), gpu.ErrUnsupported, "idle"},
		"slice of a slice":       {claim("a", w.slice(0, 19, 0).timed("Short")), gpu.ErrUnsupported, "time slice"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := p.Prepare(quiet(t), test.claim)
			if !has(err, test.message, test.claim.String()) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("prepare: %v, want %q and %v", err, test.message, test.is)
			}
			if w.records.writes > 0 {
				t.Error("a record was written")
			}
		})
	}
	if err := p.Unprepare(quiet(t), Ref{UID: "a/b"}); !has(err, "UID") {
		t.Errorf("unprepare: %v, want it to refuse the UID", err)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{LocksDir: t.TempDir()}); !has(err, "boot ID") {
		t.Errorf("without a boot ID: %v", err)
	}
	if _, err := New(Config{BootID: "boot", LocksDir: "/dev/null/locks"}); err == nil {
		t.Error("a folder of locks below a file")
	}
}

func TestNodeWithoutTimeSlices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	p.TimeSlice = noTimeSlice{}
	c := claim("a", w.whole(0))
	c.Wanted[0].Settings.TimeSlice = "Long"
	if _, err := p.Prepare(quiet(t), c); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("prepare: %v, want unsupported", err)
	}
	clean(t, w)
}

// TestVanishedInstance removes the instance of a prepared claim: that is an error, and nothing is created in its place, because the
// claim's pods use the old one. One that another program creates at exactly the place is the same to the driver, with its ids and UUID.
func TestVanishedInstance(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]bool{"gone": false, "replaced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "h100x2")
			p := w.process(t, nil)
			c := claim("a", w.slice(0, 19, 3))
			mustPrepare(t, p, c)
			w.gpus[h0].Instances = nil
			if replace {
				made, err := w.intrude(c.Wanted[0])
				if err != nil {
					t.Fatal(err)
				}
				delete(w.foreign, made.UUID)
				mustPrepare(t, p, c)
			} else if _, err := p.Prepare(quiet(t), c); !has(err, "claim team/a", c.Wanted[0].Device, "profile 19 at slices 3-3") {
				t.Errorf("prepare: %v, want it to name the device", err)
			}
			if err := p.Reconcile(quiet(t)); replace != (err == nil) || !replace && !has(err, "reconcile claim team/a (uid-a)") {
				t.Errorf("reconcile: %v, want it to name the claim", err)
			}
			if got := w.records.kept["uid-a"].State; got != StatePrepared {
				t.Errorf("record: %s, want it as it was", got)
			}
			mustUnprepare(t, p, c)
			clean(t, w)
		})
	}
}

func TestMIGEnabledUnderWholeGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	c := claim("a", w.whole(0))
	mustPrepare(t, p, c)
	w.leaveOn(0)
	if _, err := p.Prepare(quiet(t), c); !has(err, "MIG was enabled", h0) {
		t.Errorf("prepare: %v, want that MIG is on", err)
	}
	mustUnprepare(t, p, c)
	clean(t, w)
}

// TestChangedAllocation prepares a claim that got other devices without an Unprepare in between.
func TestChangedAllocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	mustPrepare(t, p, claim("a", w.slice(0, 19, 3)))
	mustPrepare(t, p, claim("a", w.slice(1, 9, 0), w.slice(1, 9, 4)))
	sound(t, w)
	if got := w.instances(); len(got) != 2 || got[0].GPU != h1 {
		t.Errorf("instances: %v, want the new ones only", got)
	}
	if got := w.gpus[h0].Mode; got != gpu.ModeDisabled {
		t.Errorf("MIG on the GPU that was given up: %v", got)
	}
	mustUnprepare(t, p, claim("a"))
	clean(t, w)
}

// TestRecordOfOtherBootHoldsNothing calls the agent after a boot before anything was reconciled.
func TestRecordOfOtherBootHoldsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	mustPrepare(t, w.process(t, nil), claim("a", w.slice(0, 19, 3)))
	mustPrepare(t, w.process(t, nil), claim("b", w.slice(0, 19, 4)))
	w.reboot()
	p := w.process(t, nil)
	mustPrepare(t, p, claim("next", w.whole(0)))
	if _, err := p.Prepare(quiet(t), claim("a", w.slice(0, 19, 3))); !has(err, "held by claim team/next") {
		t.Errorf("prepare: %v, want the holder", err)
	}
	mustUnprepare(t, p, claim("a"))
	mustUnprepare(t, p, claim("b"))
	sound(t, w)
	mustUnprepare(t, p, claim("next"))
	clean(t, w)
}

// TestRecordOfOtherBootDestroysNothing finds another's instance where the last boot's would lie.
func TestRecordOfOtherBootDestroysNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *Preparer, c Claim) error{
		"reconcile": func(p *Preparer, _ Claim) error { return p.Reconcile(quiet(t)) },
		"unprepare": func(p *Preparer, c Claim) error { return p.Unprepare(quiet(t), c.Ref) },
	} {
		for _, state := range []State{StatePreparing, StatePrepared, StateUnpreparing} {
			w := newWorld(t, "h100x2")
			c := claim("a", w.slice(0, 19, 3))
			r := with(state, c)
			r.BootID = "boot-0"
			w.records.kept[c.UID] = r
			if _, err := w.intrude(c.Wanted[0]); err != nil {
				t.Fatal(err)
			}
			if err := end(w.process(t, nil), c); err != nil {
				t.Errorf("%s of %s: %v", name, state, err)
			}
			if got := len(w.instances()); got != 1 {
				t.Errorf("%s of %s: %d instances, want the other's", name, state, got)
			}
			clean(t, w)
		}
	}
}

// TestNewerAgentDecodesClaimDifferently checks that a claim which is ready stays as it was made.
func TestNewerAgentDecodesClaimDifferently(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	c := claim("a", w.slice(0, 19, 3), w.whole(1))
	first := mustPrepare(t, w.process(t, nil), c)
	c.Wanted = []Wanted{w.whole(1), w.slice(0, 19, 3)}
	c.Wanted[0].Settings.TimeSlice = "Short"
	second := mustPrepare(t, w.process(t, nil), c)
	if *first[0].Instance != *second[0].Instance {
		t.Errorf("instance: %v, before %v", second[0].Instance, first[0].Instance)
	}
	sound(t, w)
}

func TestBusyInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	c := claim("a", w.slice(0, 19, 0), w.slice(0, 19, 1))
	answers := mustPrepare(t, p, c)
	w.busy[answers[0].Instance.UUID] = true
	if err := p.Unprepare(quiet(t), c.Ref); !errors.Is(err, gpu.ErrBusy) || !has(err, "claim team/a", answers[0].Instance.String()) {
		t.Errorf("unprepare: %v, want the instance that is busy", err)
	}
	if got := w.instances(); len(got) != 1 {
		t.Errorf("instances: %v, want the busy one only", got)
	}
	mustPrepare(t, p, claim("neighbour", w.slice(0, 19, 2)))
	mustPrepare(t, p, claim("far", w.whole(1)))
	_, err := p.Prepare(quiet(t), claim("next", w.slice(0, 19, 0)))
	if !has(err, "held by claim team/a as profile 19 at slices 0-0, being released") {
		t.Errorf("prepare: %v, want the holder", err)
	}
	if _, err := p.Prepare(quiet(t), c); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("prepare of the same claim: %v, want it to wait for its end", err)
	}
	if err := p.Reconcile(quiet(t)); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("reconcile: %v, want the instance that is busy", err)
	}
	sound(t, w)
	w.busy = map[string]bool{}
	if err := p.Reconcile(quiet(t)); err != nil {
		t.Error(err)
	}
	mustPrepare(t, p, claim("next", w.slice(0, 19, 0)))
	sound(t, w)
	for _, name := range []string{"neighbour", "far", "next"} {
		mustUnprepare(t, p, claim(name))
	}
	clean(t, w)
}

func TestLostGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	c := claim("a", w.slice(0, 19, 0), w.slice(1, 19, 0))
	mustPrepare(t, p, c)
	w.gpus[h0].lost = true
	if err := p.Unprepare(quiet(t), c.Ref); err != nil {
		t.Errorf("unprepare: %v: a lost GPU must not hold up the pod's end", err)
	}
	if got := w.instances(); len(got) != 1 || got[0].GPU != h0 {
		t.Errorf("instances: %v, want the one that cannot be reached", got)
	}
	if got := w.records.kept["uid-a"].State; got != StateUnpreparing {
		t.Errorf("record: %q, want Unpreparing", got)
	}
	if _, err := p.Prepare(quiet(t), claim("a", w.slice(1, 19, 0))); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("prepare: %v, want it to wait: the record is all that is known of the instance", err)
	}
	w.gpus[h0].lost = false
	if err := p.Reconcile(quiet(t)); err != nil {
		t.Error(err)
	}
	clean(t, w)
}

// TestForeignInstanceDuringPrepare lets an administrator be faster, at every moment of the call: the instance
// is left alone, and the claim leaves nothing.
func TestForeignInstanceDuringPrepare(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"save Preparing", "mode " + h0, "create " + h0} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "h100x2")
			c := claim("a", w.slice(0, 19, 0), w.slice(0, 9, 4))
			if moment != "save Preparing" {
				mustPrepare(t, w.process(t, nil), claim("b", w.slice(0, 19, 1)))
			}
			done := false
			w.before = func(call string) error {
				if call == moment && !done {
					done = true
					if _, err := w.intrudeNow(c.Wanted[1]); err != nil {
						t.Error(err)
					}
				}
				return nil
			}
			_, err := w.process(t, nil).Prepare(quiet(t), c)
			if !errors.Is(err, gpu.ErrOccupied) {
				t.Errorf("prepare: %v, want occupied", err)
			}
			w.before = nil
			sound(t, w)
			if _, kept := w.records.kept[c.UID]; kept {
				t.Error("the claim kept a record")
			}
			if _, err := w.process(t, nil).Prepare(quiet(t), c); !has(err, "not created by Tessera") {
				t.Errorf("prepare again: %v, want the intruder", err)
			}
			foreign := slices.DeleteFunc(w.instances(), func(i gpu.Instance) bool { return !w.foreign[i.UUID] })
			if len(foreign) != 1 {
				t.Errorf("instances of others: %v, want the intruder", foreign)
			}
		})
	}
}

// TestForeignInstanceBeforeMIGIsDisabled makes an instance after the plan saw none.
func TestForeignInstanceBeforeMIGIsDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	w.leaveOn(0)
	w.before = func(call string) error {
		if call == "save Preparing" {
			if _, err := w.intrudeNow(w.slice(0, 19, 0)); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if _, err := w.process(t, nil).Prepare(quiet(t), claim("a", w.whole(0))); !has(err, "disable MIG on "+h0, "not created by Tessera") {
		t.Errorf("prepare: %v, want the intruder", err)
	}
	w.before = nil
	if got := len(w.instances()); got != 1 {
		t.Errorf("%d instances, want the intruder", got)
	}
	clean(t, w)
}

// TestTimeout ends the context in the middle: what was made stays for the next call, which makes
// nothing twice.
func TestTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	c := claim("a", w.slice(0, 19, 3))
	ctx, cancel := context.WithCancelCause(quiet(t))
	gone := errors.New("kubelet hung up")
	p := w.process(t, func(when When, _ Ref, s Step) {
		if when == After && s.Kind == CreateInstance {
			cancel(gone)
		}
	})
	_, err := p.Prepare(ctx, c)
	if !errors.Is(err, gone) || !has(err, "timeout before complete-instance "+h0) || has(err, "undo") {
		t.Errorf("prepare: %v, want the step that was next and why", err)
	}
	before := w.instances()
	if len(before) != 1 || w.records.kept[c.UID].State != StatePreparing {
		t.Fatalf("instances %v, record %q: want what was made", before, w.records.kept[c.UID].State)
	}
	answers := mustPrepare(t, w.process(t, nil), c)
	if got := answers[0].Instance; got.GI != before[0].GI || len(w.instances()) != 1 {
		t.Errorf("instance %v, want %v completed", got, before[0])
	}
	mustUnprepare(t, p, c)
	clean(t, w)
}

// damagedClaim is a claim that is ready and whose record cannot be read.
func damagedClaim(t *testing.T) (*world, Claim) {
	t.Helper()
	w := newWorld(t, "h100x2")
	c := claim("a", w.slice(0, 19, 3), w.whole(1))
	mustPrepare(t, w.process(t, nil), c)
	w.damage(c)
	return w, c
}

// TestUnreadableRecord makes the record again, whether kubelet or the reconcile comes first. What the
// claim holds is not touched.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	for name, come := range map[string]func(p *Preparer, c Claim) error{
		"prepared again": func(p *Preparer, c Claim) error { _, err := p.Prepare(quiet(t), c); return err },
		"reconciled":     func(p *Preparer, _ Claim) error { return p.Reconcile(quiet(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, c := damagedClaim(t)
			before := w.instances()
			if err := come(w.process(t, nil), c); err != nil {
				t.Fatal(err)
			}
			if got := w.records.kept[c.UID]; got.State != StatePrepared || !cmp.Equal(got.Instances, before) {
				t.Errorf("record: %s with %v, want Prepared with %v", got.State, got.Instances, before)
			}
			if diff := cmp.Diff(before, w.instances()); diff != "" {
				t.Errorf("instances (-before +after):\n%s", diff)
			}
			sound(t, w)
			mustUnprepare(t, w.process(t, nil), c)
			clean(t, w)
		})
	}
	t.Run("unprepared", func(t *testing.T) {
		t.Parallel()
		w, c := damagedClaim(t)
		p := w.process(t, nil)
		p.Claims = outside{err: errors.New("no answer")}
		if err := p.Unprepare(quiet(t), c.Ref); !has(err, "no answer") {
			t.Errorf("unprepare without an answer: %v, want it to be tried again", err)
		}
		p.Claims = w.api
		mustUnprepare(t, p, c)
		clean(t, w)
	})
}

// TestUnreadableRecordOfDeletedClaim destroys the MIG devices that the damaged text names when kubelet ends the claim, and no others on a guess.
func TestUnreadableRecordOfDeletedClaim(t *testing.T) {
	t.Parallel()
	w, c := damagedClaim(t)
	p := w.process(t, nil)
	mustPrepare(t, p, claim("neighbour", w.slice(0, 19, 4)))
	foreign, err := w.intrude(w.slice(0, 19, 5))
	if err != nil {
		t.Fatal(err)
	}
	damaged := w.records.unreadable[c.UID]
	for name, salvaged := range map[string]Ref{"no name": {UID: c.UID}, "damaged name": {UID: c.UID, Namespace: "team", Name: "q"}} {
		w.records.unreadable[c.UID] = UnreadableRecord{Claim: salvaged, Text: damaged.Text}
		if err := p.Reconcile(quiet(t)); err != nil {
			t.Errorf("%s: reconcile: %v", name, err)
		}
		if len(w.specs.kept) != 2 || len(w.records.unreadable) != 1 || len(w.instances()) != 3 {
			t.Errorf("%s: the claim's pods may run, and it was released", name)
		}
	}
	delete(w.api.claims, c.UID)
	mustUnprepare(t, p, c)
	mustUnprepare(t, p, claim("neighbour"))
	if diff := cmp.Diff([]gpu.Instance{foreign}, w.instances()); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	clean(t, w)
}

// A claim that neither the API server nor kubelet has any more is released without a call of kubelet, also if no spec was written.
func TestReconcileReleasesUnreadableRecordOfDeletedClaim(t *testing.T) {
	t.Parallel()
	for _, spec := range []bool{true, false} {
		w, c := damagedClaim(t)
		delete(w.api.claims, c.UID)
		w.api.gone = map[string]bool{c.UID: true}
		if !spec {
			delete(w.specs.kept, c.UID)
		}
		if err := w.process(t, nil).Reconcile(quiet(t)); err != nil {
			t.Errorf("spec %t: %v", spec, err)
		}
		clean(t, w)
	}
}

// A MIG device with a process is not destroyed, and neither is one that another record has or that the damaged text does not name.
func TestUnreadableRecordOfDeletedClaimInUse(t *testing.T) {
	t.Parallel()
	w, c := damagedClaim(t)
	delete(w.api.claims, c.UID)
	used := w.instances()[0]
	w.gpus[h0].processes = []gpu.Process{{PID: 7, GI: used.GI}}
	p := w.process(t, nil)
	if err := p.Unprepare(quiet(t), c.Ref); !errors.Is(err, gpu.ErrBusy) || !has(err, "process 7") {
		t.Errorf("with a process: %v", err)
	}
	w.gpus[h0].processes = nil
	mustUnprepare(t, p, c)
	clean(t, w)

	w, c = damagedClaim(t)
	delete(w.api.claims, c.UID)
	p = w.process(t, nil)
	mustPrepare(t, p, claim("neighbour", w.slice(0, 19, 4)))
	text := w.records.unreadable[c.UID].Text + strconv.Quote(w.records.kept[ref("neighbour").UID].Instances[0].UUID)
	w.records.unreadable[c.UID] = UnreadableRecord{Claim: c.Ref, Text: text}
	mustUnprepare(t, p, c)
	if got := len(w.instances()); got != 1 {
		t.Errorf("%d instances, want that of the neighbor", got)
	}

	w, c = damagedClaim(t)
	delete(w.api.claims, c.UID)
	w.records.unreadable[c.UID] = UnreadableRecord{Claim: c.Ref, Text: "\x00\x00"}
	mustUnprepare(t, w.process(t, nil), c)
	if got := len(w.instances()); got != 1 {
		t.Errorf("%d instances: one was destroyed on a guess", got)
	}
}

// TestUnreadableRecordAndErrors fails to make the record again: the claim's instances stay, because
// its pods may run.
func TestUnreadableRecordAndErrors(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"write", "save Prepared", "mode " + h0} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			w, c := damagedClaim(t)
			before := w.instances()
			w.before = func(made string) error {
				if made == call {
					return errors.New("broken")
				}
				return nil
			}
			if _, err := w.process(t, nil).Prepare(quiet(t), c); !has(err, "broken") {
				t.Errorf("prepare: %v, want the trouble", err)
			}
			w.before = nil
			if diff := cmp.Diff(before, w.instances()); diff != "" {
				t.Errorf("instances (-before +after):\n%s", diff)
			}
			mustPrepare(t, w.process(t, nil), c)
			sound(t, w)
		})
	}
}

// TestUnreadableRecordDoesNotTakeHeldDevices keeps a device from a claim whose record is unreadable when
// another claim was given it meanwhile.
func TestUnreadableRecordDoesNotTakeHeldDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	c := claim("a", w.whole(0))
	mustPrepare(t, p, c)
	w.damage(c)
	mustPrepare(t, p, claim("b", w.whole(0)))
	if _, err := p.Prepare(quiet(t), c); !has(err, "held by claim team/b as gpu") {
		t.Errorf("prepare: %v, want the holder", err)
	}
}

// A driver can report other multiprocessors while MIG is off. A MIG device has those of its profile once MIG is enabled.
func TestProfilesChangeWithTheMode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	profiles := w.node.GPUs[0].Geometry.Profiles()
	for i := range profiles {
		profiles[i].Multiprocessors -= 2
	}
	enabled, err := gpu.NewGeometry(profiles)
	if err != nil {
		t.Fatal(err)
	}
	w.gpus[h0].enabled = enabled
	p := w.process(t, nil)
	c := claim("a", w.slice(0, 19, 3))
	answers := mustPrepare(t, p, c)
	if got := answers[0].Instance.Multiprocessors; got != profiles[0].Multiprocessors {
		t.Errorf("%d multiprocessors, want %d", got, profiles[0].Multiprocessors)
	}
	mustUnprepare(t, p, c)
	clean(t, w)
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	for _, c := range []Claim{claim("kept", w.slice(0, 19, 0)), claim("stale", w.slice(0, 19, 1)), claim("other", w.whole(1))} {
		mustPrepare(t, p, c)
	}
	if _, err := w.intrude(w.slice(0, 9, 4)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.specs.Write("uid-orphan", nil); err != nil {
		t.Fatal(err)
	}
	delete(w.specs.kept, "uid-kept")

	p.Claims = outside{err: errors.New("no answer")}
	if err := p.Reconcile(quiet(t)); !has(err, "claim team/kept", "claim team/stale", "claim team/other", "no answer") {
		t.Errorf("reconcile without an answer: %v, want every claim named", err)
	}
	if len(w.records.kept) != 3 {
		t.Error("a claim was unprepared although it may be held")
	}
	sound(t, w)
	p.Claims = outside{gone: map[string]bool{"uid-stale": true}}
	settled := make(chan string, 9)
	p.Reconciled = func(claim Ref, answers []Answer) {
		settled <- fmt.Sprintf("%s %s %v", claim.Name, answers[0].Device, answers[0].CDIDevices)
	}
	if err := p.Reconcile(quiet(t)); err != nil {
		t.Error(err)
	}
	close(settled)
	var reported []string
	for s := range settled {
		reported = append(reported, s)
	}
	slices.Sort(reported)
	slice, whole := w.slice(0, 19, 0).Device, w.whole(1).Device
	want := []string{
		"kept " + slice + " [claim/uid-kept-" + slice + " common]",
		"other " + whole + " [claim/uid-other-" + whole + " common]",
	}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
	sound(t, w)
	var left []string
	for _, r := range w.records.snapshot() {
		left = append(left, r.Name)
	}
	if diff := cmp.Diff([]string{"kept", "other"}, left); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if _, there := w.specs.kept["uid-orphan"]; there || len(w.specs.kept) != 2 {
		t.Errorf("specs: %v, want those of the claims", w.specs.kept)
	}
	for _, name := range []string{"kept", "other"} {
		mustUnprepare(t, p, claim(name))
	}
	clean(t, w)
}

// Claims of running pods are verified without a read of the API server, which may not have them any more.
func TestReconcileDoesNotReadRunningClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	runs, ended := claim("runs", w.slice(0, 19, 0)), claim("ended", w.slice(0, 19, 1))
	mustPrepare(t, p, runs)
	mustPrepare(t, p, ended)
	var reported []string
	p.Reconciled = func(claim Ref, _ []Answer) { reported = append(reported, claim.Name) }
	p.Claims = outside{gone: map[string]bool{runs.UID: true, ended.UID: true}, running: map[Ref]bool{runs.Ref: true}}
	if err := p.Reconcile(quiet(t)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"runs"}, reported); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	p.Claims = outside{err: errors.New("no answer"), running: map[Ref]bool{runs.Ref: true}}
	if err := p.Reconcile(quiet(t)); err != nil {
		t.Errorf("without the API server: %v", err)
	}
	sound(t, w)
}

func TestReconcileCannotList(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"list-records", "list-specs"} {
		w := newWorld(t, "h100x2")
		w.before = func(c string) error {
			if c == call {
				return errors.New("broken")
			}
			return nil
		}
		if err := w.process(t, nil).Reconcile(quiet(t)); !has(err, "reconcile", "broken") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestReconcileKeepsHeldClaims reconciles while an agent, this one or another, is in the middle of
// preparing.
func TestReconcileKeepsHeldClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	other := w.process(t, nil)
	var p *Preparer
	reconciled := 0
	p = w.process(t, func(when When, claim Ref, s Step) {
		if claim.Name != "a" {
			t.Errorf("%s %v for claim %s", when, s, claim)
		}
		for _, agent := range []*Preparer{p, other} {
			reconciled++
			if err := agent.Reconcile(quiet(t)); err != nil {
				t.Error(err)
			}
		}
	})
	c := claim("a", w.slice(0, 19, 3))
	mustPrepare(t, p, c)
	mustUnprepare(t, p, c)
	if reconciled == 0 {
		t.Error("nothing was reconciled")
	}
	clean(t, w)
}

func TestDoubleAllocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	mustPrepare(t, p, claim("b", w.whole(0)))
	_, err := p.Prepare(quiet(t), claim("a", w.whole(0)))
	want := "prepare claim team/a: device " + h0 + ": held by claim team/b as gpu"
	if err == nil || err.Error() != want {
		t.Errorf("error: %v, want %s", err, want)
	}
	var held *AlreadyHeld
	if !errors.As(err, &held) || held.Claim != ref("b") || held.Releasing {
		t.Errorf("error: %#v, want it to carry the holder", held)
	}
}

// monitors is the Monitoring of a node where programs have the GPUs open until the number of requests is reached.
type monitors struct {
	leaveAfter, requests int
	done                 []string
	pinned, destroyed    int
	// limit is the number of requests after which Retry returns the refusal.
	limit int
}

func (m *monitors) Retry(_ context.Context, _ string, refusal error) error {
	if m.requests++; m.requests > m.limit {
		return refusal
	}
	return nil
}

func (m *monitors) Done(gpuName string) { m.done = append(m.done, gpuName) }

func (m *monitors) Pinned(_ string, refusal error) error {
	m.pinned++
	return fmt.Errorf("%w: pinned", refusal)
}

func (m *monitors) Destroyed(string) { m.destroyed++ }

// The driver refuses to destroy a MIG device that no process uses (DCGM issue 276): that is reported to monitoring. One that a process uses is
// none of its concern.
func TestPinnedDevice(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		processes []gpu.Process
		pinned    int
	}{
		"unused":            {nil, 1},
		"another is in use": {[]gpu.Process{{PID: 7, GI: 99}}, 1},
		"in use":            {[]gpu.Process{{PID: 7, GI: 99}, {PID: 8, GI: 1}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "h100x2")
			p := w.process(t, nil)
			m := &monitors{}
			p.Monitoring = m
			c := claim("a", w.slice(0, 19, 0))
			if _, err := p.Prepare(quiet(t), c); err != nil {
				t.Fatal(err)
			}
			w.gpus[h0].processes = test.processes
			refuses := true
			w.before = func(call string) error {
				if refuses && strings.HasPrefix(call, "destroy") {
					return gpu.ErrBusy
				}
				return nil
			}
			err := p.Unprepare(quiet(t), c.Ref)
			if !errors.Is(err, gpu.ErrBusy) || m.pinned != test.pinned || m.destroyed != 0 {
				t.Errorf("refused: %v, reported %d times, want %d", err, m.pinned, test.pinned)
			}
			refuses = false
			if err := p.Unprepare(quiet(t), c.Ref); err != nil || m.destroyed != 1 {
				t.Errorf("again: %v, destroyed %d times, want once", err, m.destroyed)
			}
		})
	}
}

// The driver refuses a change of the MIG mode while dcgm-exporter has the GPU open (nvmlDeviceSetMigMode: NVML_ERROR_IN_USE). A claim makes it leave;
// to disable MIG after the last MIG device is not worth that.
func TestModeChangeMakesMonitoringLeave(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit int
		want  error
	}{"it leaves": {5, nil}, "it stays": {2, gpu.ErrBusy}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "h100x2")
			p := w.process(t, nil)
			m := &monitors{leaveAfter: 3, limit: test.limit}
			p.Monitoring = m
			w.before = func(call string) error {
				if strings.HasPrefix(call, "set-mode") && m.requests < m.leaveAfter {
					return gpu.ErrBusy
				}
				return nil
			}
			c := claim("a", w.slice(0, 19, 0))
			if _, err := p.Prepare(quiet(t), c); !errors.Is(err, test.want) {
				t.Fatalf("prepare: %v, want %v", err, test.want)
			}
			if test.want != nil {
				return
			}
			if m.requests != 3 || len(m.done) != 1 {
				t.Errorf("%d requests, done %v, want 3 times and done once", m.requests, m.done)
			}
			m.leaveAfter = 100 // monitoring is back
			if err := p.Unprepare(quiet(t), c.Ref); err != nil || m.requests != 3 {
				t.Errorf("unprepare: %v, %d requests, want success without another request", err, m.requests)
			}
		})
	}
}
