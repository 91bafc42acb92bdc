package prepare

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// door is a gate that the test opens and closes.
type door struct {
	closed         bool
	passed, inside int
	// gpus are those of the last claim.
	gpus []string
}

func (d *door) Enter(_ context.Context, _ Ref, gpus []string) (func(), error) {
	d.gpus = gpus
	if d.closed {
		return nil, &OutOfService{Operation: "DriverSwap", Reason: "a newer driver"}
	}
	d.passed++
	d.inside++
	return func() { d.inside-- }, nil
}

func TestGate(t *testing.T) {
	w := newWorld(t, "h100x2")
	d := &door{}
	gated := func(observe Observer) *Preparer {
		p := w.process(t, observe)
		p.Gate = d
		return p
	}
	outside := 0
	p := gated(func(When, Ref, Step) {
		if d.inside == 0 {
			outside++
		}
	})
	before := claim("before", w.slice(0, 9, 4))
	mustPrepare(t, p, before)
	if d.passed != 1 || d.inside != 0 || outside != 0 {
		t.Errorf("passed %d times, %d are inside, %d moments of steps were outside", d.passed, d.inside, outside)
	}

	watched := w.whole(1)
	watched.Admin = true
	mustPrepare(t, p, claim("watcher", watched, w.slice(0, 19, 0)))
	if !slices.Equal(d.gpus, []string{h0}) {
		t.Errorf("the gate was entered for %v, want what the claim holds", d.gpus)
	}
	mustUnprepare(t, p, claim("watcher"))

	d.closed = true
	p = gated(nil)
	mustPrepare(t, p, before) // another pod of the claim
	fresh := claim("fresh", w.whole(1))
	if _, err := p.Prepare(quiet(t), fresh); !errors.Is(err, ErrOutOfService) || !has(err, "DriverSwap", "a newer driver") {
		t.Errorf("a new claim: %v", err)
	}
	other := claim(before.Name, w.slice(0, 9, 0))
	if _, err := p.Prepare(quiet(t), other); !errors.Is(err, ErrOutOfService) {
		t.Errorf("the claim with other devices: %v", err)
	}
	if err := p.Reconcile(quiet(t)); err != nil {
		t.Error(err)
	}
	sound(t, w)
	mustUnprepare(t, p, before)
	if _, err := p.Prepare(quiet(t), before); !errors.Is(err, ErrOutOfService) {
		t.Errorf("after it was taken back: %v", err)
	}
	clean(t, w)

	d.closed = false
	mustPrepare(t, p, fresh)
	w.reboot()
	d.closed = true
	p = gated(nil)
	if _, err := p.Prepare(quiet(t), fresh); !errors.Is(err, ErrOutOfService) {
		t.Errorf("a claim of the last boot: %v", err)
	}
	mustUnprepare(t, p, fresh)
	clean(t, w)
}
