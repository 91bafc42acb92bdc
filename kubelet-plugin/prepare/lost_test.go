package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// reset brings a GPU back as a reset does: it answers, and is empty. An agent that starts sees it so.
func (w *world) reset(name string) {
	c := w.gpus[name]
	c.lost, c.Instances, c.interval, c.compute = false, nil, defaultTimeSlice, gpu.ComputeDefault
}

// TestLostDuringPrepare loses a GPU at every moment of Prepare: the call says so, the pod's end is not held up, the claim holds nothing that would
// keep the GPU from being reset, and nothing is left after that, nor on the claim's other GPU.
func TestLostDuringPrepare(t *testing.T) {
	t.Parallel()
	claims := map[string]func(w *world) Claim{
		"slices":     func(w *world) Claim { return claim("a", w.slice(0, 19, 0), w.slice(0, 19, 1), w.slice(1, 19, 0)) },
		"whole":      func(w *world) Claim { return claim("a", w.whole(0)) },
		"time slice": func(w *world) Claim { return claim("a", w.whole(0).timed("Long")) },
		"time share": func(w *world) Claim { return claim("a", w.share(0, gpu.TimeShare, 1, 0).timed("Long")) },
		"MPS":        func(w *world) Claim { return claim("a", w.share(0, gpu.MPS, 1, 0), w.slice(1, 19, 0)) },
	}
	for name, want := range claims {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for moment := 0; ; moment++ {
				if !loseAt(t, moment, want) {
					break
				}
			}
		})
	}
}

// loseAt loses the first GPU at the moment and reports whether there was such a one.
func loseAt(t *testing.T, moment int, want func(w *world) Claim) bool {
	t.Helper()
	w := newWorld(t, "h100x2")
	c := want(w)
	now, reached := 0, ""
	p := w.process(t, func(when When, _ Ref, s Step) {
		if now == moment {
			reached = fmt.Sprintf("%v %v", when, s)
			w.gpus[h0].lost = true
		}
		now++
	})
	_, err := p.Prepare(quiet(t), c)
	if reached == "" {
		return false
	}
	if err != nil && !errors.Is(err, gpu.ErrLost) {
		t.Errorf("%s: %v", reached, err)
	}
	p = w.process(t, nil)
	if _, again := p.Prepare(quiet(t), c); err != nil && !errors.Is(again, gpu.ErrLost) && w.gpus[h0].lost && again != nil {
		t.Errorf("%s: the next call: %v", reached, again)
	}
	if err := p.Unprepare(quiet(t), c.Ref); err != nil {
		t.Errorf("%s: unprepare: %v", reached, err)
	}
	for _, r := range w.records.snapshot() {
		if r.Holds([]string{h0}) {
			t.Errorf("%s: the GPU is held by a record that is %s: it cannot be reset", reached, r.State)
		}
	}
	w.reset(h0)
	if err := p.Reconcile(quiet(t)); err != nil {
		t.Errorf("%s: reconcile: %v", reached, err)
	}
	for _, left := range append(w.litter(), w.faults()...) {
		t.Errorf("%s: left behind: %s", reached, left)
	}
	mustPrepare(t, p, claim("next", w.whole(0)))
	return true
}

// While the driver is away, GPUs are not reported as lost; for the claim, they are.
func TestMissingDriver(t *testing.T) {
	w := newWorld(t, "h100x2")
	node := w.node
	node.GPUs = slices.Clone(node.GPUs)
	for n := range node.GPUs {
		node.GPUs[n].Lost = true
	}
	if err := findGPU(node, h0).unread; !errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("lost: %v", err)
	}
	node.GPUs[0].Faults = []gpu.Fault{{GPU: h0, Signal: gpu.SignalDriver, Severity: gpu.Critical}}
	if err := findGPU(node, h0).unread; !errors.Is(err, gpu.ErrNoDriver) || !errors.Is(err, gpu.ErrLost) {
		t.Errorf("without a driver: %v", err)
	}
	node.GPUs[0].Lost = false
	if err := findGPU(node, h0).unread; err != nil {
		t.Errorf("when it answers: %v", err)
	}
}

func TestHolds(t *testing.T) {
	w := newWorld(t, "h100x2")
	admin := w.whole(1)
	admin.Admin = true
	r := Record{State: StatePrepared, Wanted: []Wanted{w.slice(0, 19, 0), admin}}
	for _, test := range []struct {
		state State
		gpus  []string
		want  bool
	}{
		{StatePrepared, []string{h0}, true}, {StatePreparing, []string{h1, h0}, true}, {StatePrepared, []string{h1}, false}, {StateUnpreparing, []string{h0}, false}, {StatePrepared, nil, false},
	} {
		if r.State = test.state; r.Holds(test.gpus) != test.want {
			t.Errorf("%s, %v: want %t", test.state, test.gpus, test.want)
		}
	}
}

// TestExclusive holds GPUs: who prepares on them waits and is told for what, who prepares elsewhere does not, in this process and in another.
func TestExclusive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p, other := w.process(t, nil), w.process(t, nil)
	begun, end := make(chan struct{}), make(chan struct{})
	var held sync.WaitGroup
	held.Go(func() {
		err := p.Exclusive(quiet(t), []string{h0, h0}, "the reset of "+h0, func(context.Context) error {
			close(begun)
			<-end
			return errors.New("from inside")
		})
		if err == nil || err.Error() != "from inside" {
			t.Errorf("exclusive: %v", err)
		}
	})
	<-begun
	mustPrepare(t, p, claim("elsewhere", w.whole(1)))
	for _, agent := range []*Preparer{p, other} {
		ctx, cancel := context.WithTimeoutCause(quiet(t), time.Second, errors.New("the test gave up"))
		if _, err := agent.Prepare(ctx, claim("a", w.whole(0))); !has(err, "waiting for "+h0, "the reset of "+h0, "the test gave up") {
			t.Errorf("prepare below it: %v", err)
		}
		cancel()
	}
	if ran := slices.Contains(w.free(t, p), h0); ran {
		t.Error("two had the GPU for themselves")
	}
	close(end)
	held.Wait()
	mustPrepare(t, other, claim("a", w.whole(0)))
}

// free returns the GPUs that are free for Exclusive at once, to a caller that has no time.
func (w *world) free(t *testing.T, p *Preparer) []string {
	t.Helper()
	var free []string
	for _, name := range []string{h0, h1} {
		ctx, cancel := context.WithCancel(quiet(t))
		cancel()
		err := p.Exclusive(ctx, []string{name}, "a look", func(context.Context) error {
			free = append(free, name)
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	return free
}
