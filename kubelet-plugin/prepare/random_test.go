package prepare

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

// walk is a random history of one node.
type walk struct {
	*world
	t      *testing.T
	claims []Claim
}

// mishap is what happens to an agent during one call.
type mishap struct {
	// kill, cancel and fail are the number of the event or port call at which the agent dies, its
	// context ends or the port fails; negative for never.
	kill, cancel, fail int
	effect             bool
}

var mishaps = rapid.Custom(func(t *rapid.T) mishap {
	m := mishap{kill: -1, cancel: -1, fail: -1}
	number := rapid.IntRange(0, 20)
	switch rapid.SampledFrom([]string{"none", "none", "kill", "cancel", "fail"}).Draw(t, "mishap") {
	case "kill":
		m.kill = number.Draw(t, "event")
	case "cancel":
		m.cancel = number.Draw(t, "event")
	case "fail":
		m.fail, m.effect = number.Draw(t, "call"), rapid.Bool().Draw(t, "effect")
	}
	return m
})

var errMishap = errors.New("mishap")

// call runs an agent's call under the mishap and reports whether the mishap came.
func (w *walk) call(m mishap, do func(ctx context.Context, p *Preparer) error) (came bool, err error) {
	ctx, cancel := context.WithCancelCause(quiet(w.t))
	defer cancel(nil)
	event := -1
	p := w.process(w.t, func(When, Ref, Step) {
		event++
		if event == m.kill {
			came = true
			panic(killed{})
		}
		if event == m.cancel {
			came = true
			cancel(errMishap)
		}
	})
	number := -1
	fail := func(effect bool) func(string) error {
		return func(string) error {
			if !effect {
				number++
			}
			if number == m.fail && effect == m.effect {
				came = true
				return errMishap
			}
			return nil
		}
	}
	w.before, w.after = fail(false), fail(true)
	defer func() { w.before, w.after = nil, nil }()
	dead, err := survive(func() error { return do(ctx, p) })
	if dead {
		return true, nil
	}
	return came, err
}

// apart runs an action on one claim and checks that no other claim notices.
func (w *walk) apart(t *rapid.T, uid string, action func()) {
	before := map[string][]Prepared{}
	for _, r := range w.records.snapshot() {
		if r.UID != uid && r.State == StatePrepared && r.BootID == w.bootID() {
			before[r.UID] = steady(w.specs.kept[r.UID])
		}
	}
	action()
	same := cmp.Comparer(func(a, b *gpu.Geometry) bool { return a == b })
	for other, spec := range before {
		if got := w.records.kept[other].State; got != StatePrepared {
			t.Errorf("claim %s became %q", other, got)
		}
		if diff := cmp.Diff(spec, steady(w.specs.kept[other]), same); diff != "" {
			t.Errorf("devices of claim %s changed:\n%s", other, diff)
		}
	}
}

// steady returns the devices without what a monitor shows of others.
func steady(devices []Prepared) []Prepared {
	devices = slices.Clone(devices)
	for i := range devices {
		if devices[i].Use.Shape == gpu.Monitor {
			devices[i].Watched, devices[i].GPU.Mode = nil, 0
		}
	}
	return devices
}

func (w *walk) prepare(t *rapid.T) {
	c := rapid.SampledFrom(w.claims).Draw(t, "claim")
	m := mishaps.Draw(t, "during prepare")
	w.apart(t, c.UID, func() {
		var answers []Answer
		came, err := w.call(m, func(ctx context.Context, p *Preparer) (err error) {
			answers, err = p.Prepare(ctx, c)
			return err
		})
		expected := errors.Is(err, gpu.ErrOccupied) || errors.Is(err, gpu.ErrBusy) || errors.Is(err, gpu.ErrLost)
		switch {
		case err == nil && !came && len(answers) != len(c.Wanted):
			t.Errorf("claim %s: %d answers", c.Ref, len(answers))
		case err != nil && !came && !expected:
			t.Errorf("claim %s: %v", c.Ref, err)
		}
	})
}

func (w *walk) unprepare(t *rapid.T) {
	c := rapid.SampledFrom(w.claims).Draw(t, "claim")
	m := mishaps.Draw(t, "during unprepare")
	w.apart(t, c.UID, func() {
		came, err := w.call(m, func(ctx context.Context, p *Preparer) error { return p.Unprepare(ctx, c.Ref) })
		if err != nil && !came && !errors.Is(err, gpu.ErrBusy) {
			t.Errorf("claim %s: %v", c.Ref, err)
		}
	})
}

func (w *walk) reconcile(t *rapid.T) {
	m := mishaps.Draw(t, "during reconcile")
	w.apart(t, "", func() {
		// Claim by claim on this goroutine, where the kill is caught. Its errors are those of single
		// claims, which the other actions judge.
		_, _ = w.call(m, func(ctx context.Context, p *Preparer) error {
			claims, err := p.storedClaims()
			for _, c := range claims {
				err = errors.Join(err, p.reconcile(ctx, c, nil))
			}
			return errors.Join(err, p.releaseOrphanDaemons(ctx))
		})
	})
}

// intrude makes an instance as an administrator who looks first: where no claim holds the slices.
func (w *walk) intrude(t *rapid.T) {
	want := w.slice(rapid.IntRange(0, 1).Draw(t, "gpu"), 19, rapid.IntRange(0, 6).Draw(t, "start"))
	for _, r := range w.records.snapshot() {
		for _, held := range r.on(want.Use.GPU) {
			if held.Use.Shape != gpu.MIG || held.Use.Placement.Mask().Overlaps(want.Use.Placement.Mask()) {
				return
			}
		}
	}
	// What does not fit is refused by the hardware.
	_, _ = w.machine.intrude(want)
}

func (w *walk) evict(t *rapid.T) {
	card := w.gpus[w.node.GPUs[rapid.IntRange(0, 1).Draw(t, "gpu")].Name()]
	card.Instances = slices.DeleteFunc(card.Instances, func(i gpu.Instance) bool { return w.foreign[i.UUID] })
}

func (w *walk) use(t *rapid.T) {
	for _, i := range w.instances() {
		w.busy[i.UUID] = rapid.Bool().Draw(t, "busy")
	}
}

func (w *walk) lose(t *rapid.T) {
	w.gpus[w.node.GPUs[rapid.IntRange(0, 1).Draw(t, "gpu")].Name()].lost = rapid.Bool().Draw(t, "lost")
}

// check is called after every action.
func (w *walk) check(t *rapid.T) {
	if faults := w.faults(); len(faults) > 0 {
		t.Fatal(strings.Join(faults, "\n"))
	}
}

// end puts the hardware right and ends every claim: nothing is left of any.
func (w *walk) end(t *rapid.T) {
	w.busy = map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.gpus)) {
		w.gpus[name].lost = false
	}
	p := w.process(w.t, nil)
	for _, c := range w.claims {
		if err := p.Unprepare(quiet(w.t), c.Ref); err != nil {
			t.Error(err)
		}
	}
	// What a reboot left has no owner.
	if err := p.releaseOrphanDaemons(quiet(w.t)); err != nil {
		t.Error(err)
	}
	for _, left := range w.litter() {
		// A failed call may have left MIG on: that is tried once.
		if !strings.HasSuffix(left, "MIG is on, without claims") {
			t.Error("left behind: " + left)
		}
	}
}

// limitedPair returns a claim of both GPUs under MPS, each with any memory limit or none.
func (w *walk) limitedPair(t *rapid.T, name string) Claim {
	limit := rapid.SampledFrom([]int64{0, 1 << 30, 2 << 30})
	return claim(name, w.whole(1).served(20).limited(limit.Draw(t, "limit of GPU 1")), w.whole(0).served(20).limited(limit.Draw(t, "limit of GPU 0")))
}

// TestRandomHistory walks through random histories of claims that compete, agents that die, calls that
// fail, busy and lost GPUs, an administrator at work and reboots.
func TestRandomHistory(t *testing.T) {
	t.Parallel()
	locks := disktest.Folder(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := &walk{world: emptyWorld(nodeOf(t, "h100x2"), locks), t: t}
		timed := claim("timed", w.whole(1))
		timed.Wanted[0].Settings.TimeSlice = "Long"
		watching := claim("watching", w.wanted(0, gpu.Use{Shape: gpu.Monitor}))
		watching.Wanted[0].Admin = true
		pair := w.limitedPair(rt, "pair-limited")
		w.claims = []Claim{
			claim("small", w.slice(0, 19, 0)), claim("wide", w.slice(0, 9, 0)), claim("pair", w.slice(0, 19, 4), w.slice(0, 14, 2)),
			claim("across", w.slice(0, 19, 6), w.slice(1, 19, 6)), claim("whole", w.whole(0)), timed, watching,
			claim("turn", w.share(0, gpu.TimeShare, 10, 0)), claim("short", w.share(0, gpu.TimeShare, 40, 0).timed("Short")),
			claim("medium", w.share(0, gpu.TimeShare, 20, 0).timed("Medium")), claim("large", w.share(0, gpu.TimeShare, 60, 0)),
			claim("half", w.share(1, gpu.MPS, 40, 50)), claim("quarter", w.share(1, gpu.MPS, 20, 25), w.share(0, gpu.TimeShare, 1, 0)),
			claim("any", w.share(1, gpu.MPS, 10, 0)), claim("more", w.share(1, gpu.MPS, 40, 50)),
			claim("served", w.whole(1).served(30)), claim("slices", w.slice(1, 19, 0).served(0), w.slice(0, 19, 1)),
			pair, claim("slices-limited", w.slice(0, 19, 2).served(0).limited(1<<30), w.slice(1, 19, 3).served(0).limited(2<<30)),
		}
		if rapid.IntRange(1, 8).Draw(rt, "the pair is first if 8") == 8 { // later, both GPUs are seldom free
			mustPrepare(t, w.process(t, nil), pair)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"prepare":   w.prepare,
			"prepare 2": w.prepare,
			"unprepare": w.unprepare,
			"reconcile": w.reconcile,
			"intrude":   w.intrude,
			"evict":     w.evict,
			"use":       w.use,
			"lose":      w.lose,
			"reboot":    func(*rapid.T) { w.reboot() },
			"":          w.check,
		})
		w.end(rt)
	})
}
