package prepare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestManyClaims fills every GPU of a node with slices through two agents at once, and empties them.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x8")
	agents := []*Preparer{w.process(t, nil), w.process(t, nil)}
	var claims []Claim
	for i := range w.node.GPUs {
		for start := range 7 {
			claims = append(claims, claim(fmt.Sprintf("claim-%d-%d", i, start), w.slice(i, 19, start)))
		}
	}
	for range 2 {
		all(t, claims, func(i int, c Claim) error {
			_, err := agents[i%2].Prepare(quiet(t), c)
			return err
		})
		sound(t, w)
		if got := len(w.instances()); got != len(claims) {
			t.Errorf("%d instances, want %d", got, len(claims))
		}
		all(t, claims, func(i int, c Claim) error { return agents[(i+1)%2].Unprepare(quiet(t), c.Ref) })
		clean(t, w)
	}
}

func all(t *testing.T, claims []Claim, do func(i int, c Claim) error) {
	t.Helper()
	var group sync.WaitGroup
	for i, c := range claims {
		group.Go(func() {
			if err := do(i, c); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// TestTwoAgents calls two agents for the same claims at the same time, as during an upgrade: both
// answer the same, and nothing is made twice or undone by the other.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	agents := []*Preparer{w.process(t, nil), w.process(t, nil), w.process(t, nil)}
	claims := []Claim{
		claim("a", w.slice(0, 19, 0)), claim("b", w.slice(0, 9, 4), w.slice(0, 19, 1)), claim("c", w.whole(1)),
	}
	for range 5 {
		var mutex sync.Mutex
		uuids := map[string]map[string]bool{}
		var group sync.WaitGroup
		for _, p := range agents {
			group.Go(func() {
				if err := p.Reconcile(quiet(t)); err != nil {
					t.Error(err)
				}
			})
			for _, c := range claims {
				group.Go(func() {
					answers, err := p.Prepare(quiet(t), c)
					if err != nil {
						t.Error(err)
					}
					mutex.Lock()
					defer mutex.Unlock()
					for _, a := range answers {
						if uuids[a.Device] == nil {
							uuids[a.Device] = map[string]bool{}
						}
						if a.Instance != nil {
							uuids[a.Device][a.Instance.UUID] = true
						}
					}
				})
			}
		}
		group.Wait()
		sound(t, w)
		for device, seen := range uuids {
			if len(seen) > 1 {
				t.Errorf("%s was answered as %v", device, seen)
			}
		}
		for _, p := range agents {
			for _, c := range claims {
				group.Go(func() {
					if err := p.Unprepare(quiet(t), c.Ref); err != nil {
						t.Error(err)
					}
				})
			}
		}
		group.Wait()
		clean(t, w)
	}
}

// TestRace lets agents race for one device: one wins, the others are told who.
func TestRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	agents := []*Preparer{w.process(t, nil), w.process(t, nil)}
	rivals := []Claim{
		claim("a", w.slice(0, 19, 2)), claim("b", w.slice(0, 9, 0)), claim("c", w.whole(0)), claim("d", w.slice(0, 0, 0)),
	}
	for range 5 {
		errs := make([]error, len(rivals))
		var group sync.WaitGroup
		for i, c := range rivals {
			group.Go(func() { _, errs[i] = agents[i%2].Prepare(quiet(t), c) })
		}
		group.Wait()
		sound(t, w)
		winners := 0
		for _, err := range errs {
			var held *AlreadyHeld
			switch {
			case err == nil:
				winners++
			case !errors.As(err, &held):
				t.Errorf("a loser got %v, want who won", err)
			}
		}
		if winners != 1 {
			t.Errorf("%d claims hold the device", winners)
		}
		for _, c := range rivals {
			mustUnprepare(t, agents[0], c)
		}
		clean(t, w)
	}
}

// TestSlowDestroy holds a destroy on one GPU: claims on the other GPU come and go meanwhile, claims on
// the same one wait in order, and one whose time runs out is told for whom it waited.
func TestSlowDestroy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "h100x2")
		var mutex sync.Mutex
		var served []string
		watch := func(when When, c Ref, s Step) {
			if when == After && s.GPU == h0 && (s.Kind == DestroyInstance || s.Kind == CreateInstance) {
				mutex.Lock()
				defer mutex.Unlock()
				served = append(served, c.Name)
			}
		}
		p, other := w.process(t, watch), w.process(t, watch)
		slow := claim("slow", w.slice(0, 19, 0))
		mustPrepare(t, p, slow)
		gate := make(chan struct{})
		w.entered = func(call string) {
			if call == "destroy "+h0 {
				<-gate
			}
		}
		go func() {
			if err := p.Unprepare(quiet(t), slow.Ref); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()

		for _, agent := range []*Preparer{p, other} {
			far := claim("far", w.slice(1, 19, 0))
			mustPrepare(t, agent, far)
			mustUnprepare(t, agent, far)
		}
		for i, agent := range []*Preparer{p, other} {
			ctx, cancel := context.WithTimeout(quiet(t), 40*time.Second)
			_, err := agent.Prepare(ctx, claim("late", w.slice(0, 19, 1)))
			cancel()
			want := []string{"waiting for " + h0 + ", held by claim team/slow", "waiting for " + h0 + ", held by claim team/slow in another process"}[i]
			if !errors.Is(err, context.DeadlineExceeded) || !has(err, "prepare claim team/late", want) {
				t.Errorf("out of time: %v, want %q", err, want)
			}
		}
		ctx, cancel := context.WithTimeout(quiet(t), time.Second)
		if err := other.Unprepare(ctx, slow.Ref); !has(err, "waiting for claim-uid-slow, held by claim team/slow in another process") {
			t.Errorf("the same claim: %v, want it to wait for itself", err)
		}
		cancel()
		for _, name := range []string{"first", "second"} {
			go func() {
				if _, err := p.Prepare(quiet(t), claim(name, w.slice(0, 19, map[string]int{"first": 2, "second": 3}[name]))); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		close(gate)
		synctest.Wait()
		if diff := cmp.Diff([]string{"slow", "slow", "first", "second"}, served); diff != "" {
			t.Errorf("created, destroyed, created for (-want +got):\n%s", diff)
		}
		sound(t, w)
	})
}

// TestReconcileSkipsLockedClaims reconciles while a call holds one claim: the others are settled at once.
func TestReconcileSkipsLockedClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "h100x2")
		p := w.process(t, nil)
		slow := claim("slow", w.slice(0, 19, 0))
		mustPrepare(t, p, slow)
		for name, want := range map[string]Wanted{"abandoned": w.slice(1, 19, 0), "waiting": w.slice(0, 19, 1)} {
			r := with(StatePreparing, claim(name, want))
			w.records.kept[r.UID] = r
		}
		gate := make(chan struct{})
		w.entered = func(call string) {
			if call == "destroy "+h0 {
				<-gate
			}
		}
		go func() {
			if err := p.Unprepare(quiet(t), slow.Ref); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := w.process(t, nil).Reconcile(quiet(t)); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-done:
			t.Error("a claim whose GPU is held was settled")
		case <-time.After(time.Second):
		}
		var left []string
		for _, r := range w.records.snapshot() {
			left = append(left, r.Name)
		}
		if diff := cmp.Diff([]string{"slow", "waiting"}, left); diff != "" {
			t.Errorf("claims while the GPU is held (-want +got):\n%s", diff)
		}
		close(gate)
		<-done
		synctest.Wait()
		clean(t, w)
	})
}
