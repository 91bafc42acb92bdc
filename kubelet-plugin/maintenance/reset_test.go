package maintenance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// stage runs an Enforcer in a synctest bubble as package gpunode does: it applies the GPUNode and reads the status, on each change and
// each second. All fields are guarded by state.
type stage struct {
	gate *Gate
	stop func()

	state sync.Mutex
	// node is the GPUNode in the API server, which is unreachable while away is set. changed wakes the loop.
	node    v1alpha1.GPUNode
	away    bool
	changed chan struct{}
	// status is the last status, written how often it changed.
	status  Status
	written int
	// closed counts the calls of Closed.
	closed int
	// held is the last argument of Hold.
	held map[string]string
	// taint is the last argument of Taint.
	taint string
	// on is how many claims hold a device of a GPU.
	on map[string]int
	// fail is the error of the next reset; hang blocks it.
	fail error
	hang chan struct{}
	// resets are the resets that began, ended is how many have ended.
	resets []string
	ended  int
	// published are the GPUs with which WasReset was called; done is when the last reset ended.
	published []string
	done      time.Time
	// unlinked is whether the links of all GPUs have failed.
	unlinked bool
	// locked are GPUs whose lock another call holds, inside those that are under Exclusive.
	locked map[string]bool
	inside []string
}

func (s *stage) set(f func()) {
	s.state.Lock()
	defer s.state.Unlock()
	f()
}

// linkedGPUs returns the reset group of a GPU: gpu-a and gpu-b are reset together.
func linkedGPUs(name string) []string {
	switch name {
	case "gpu-a", "gpu-b":
		return []string{"gpu-b", "gpu-a"}
	case "gpu-c":
		return []string{name}
	}
	return nil
}

func (s *stage) config() Config {
	return Config{
		Gate:     s.gate,
		Resetter: s,
		Closed:   func() { s.set(func() { s.closed++ }) },
		Prepared: func() (int, error) { return 0, nil },
		Group: func(name string) []string {
			s.state.Lock()
			defer s.state.Unlock()
			if s.unlinked {
				return []string{name}
			}
			return linkedGPUs(name)
		},
		WasReset: func(gpus []string, at time.Time) {
			s.set(func() {
				s.published = append(s.published, strings.Join(gpus, "+"))
				if !at.Equal(s.done) {
					s.published = append(s.published, "at another time")
				}
			})
		},
		Hold:  func(held map[string]string) { s.set(func() { s.held = maps.Clone(held) }) },
		Taint: func(operation string) { s.set(func() { s.taint = operation }) },
		PreparedOn: func(gpus []string) (int, error) {
			s.state.Lock()
			defer s.state.Unlock()
			n := 0
			for _, name := range gpus {
				n += s.on[name]
			}
			return n, nil
		},
		Exclusive: s.exclusive,
	}
}

// run starts an Enforcer over the folder, as a new process would.
func (s *stage) run(t *testing.T, dir string) {
	t.Helper()
	s.gate = gate(t, dir, true)
	enforcer := NewEnforcer(s.config())
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		enforcer.Start()
		s.loop(ctx, t, enforcer)
		enforcer.Wait()
	})
	s.stop = func() {
		cancel()
		done.Wait()
	}
}

// loop applies the GPUNode as soon as the API server has answered once.
func (s *stage) loop(ctx context.Context, t *testing.T, enforcer *Enforcer) {
	var node *v1alpha1.GPUNode
	for ctx.Err() == nil {
		s.set(func() {
			if !s.away {
				node = s.node.DeepCopy()
			}
		})
		pause := time.Second
		if node != nil {
			if err := enforcer.Apply(ctx, node); err != nil {
				t.Errorf("Apply: %v", err)
			}
			status, err := enforcer.Advance(ctx)
			if err != nil {
				t.Errorf("Advance: %v", err)
			}
			s.set(func() {
				if !s.away && !cmp.Equal(s.status, status) {
					s.status = status
					s.written++
				}
			})
			if enforcer.Draining() {
				pause = 50 * time.Millisecond
			}
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-enforcer.Changed():
		case <-time.After(pause):
		}
	}
}

// perform runs the test in a bubble with a running Enforcer.
func perform(t *testing.T, test func(t *testing.T, s *stage, dir string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{changed: make(chan struct{}, 1)}
		dir := t.TempDir()
		s.run(t, dir)
		pass(time.Second)
		test(t, s, dir)
		s.stop()
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// change changes the GPUNode.
func (s *stage) change(change func(*v1alpha1.GPUNode)) {
	s.set(func() { change(&s.node) })
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// writes returns how often the status changed.
func (s *stage) writes() int {
	s.state.Lock()
	defer s.state.Unlock()
	return s.written
}

// expectClosed checks how often Closed was called.
func (s *stage) expectClosed(t *testing.T, want int) {
	t.Helper()
	s.set(func() {
		if s.closed != want {
			t.Errorf("Closed called %d times, want %d", s.closed, want)
		}
	})
}

// exclusive waits like the locks of GPUs while another call has one of the GPUs.
func (s *stage) exclusive(ctx context.Context, gpus []string, purpose string, do func(context.Context) error) error {
	for {
		free := true
		s.set(func() {
			for _, name := range gpus {
				free = free && !s.locked[name] && !slices.Contains(s.inside, name)
			}
			if free {
				s.inside = append(s.inside, gpus...)
			}
		})
		if free {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: waiting for %v, held by claim default/slow: %w", purpose, gpus, ctx.Err())
		case <-time.After(time.Second):
		}
	}
	defer s.set(func() {
		s.inside = slices.DeleteFunc(s.inside, func(name string) bool { return slices.Contains(gpus, name) })
	})
	return do(ctx)
}

// Reset implements Resetter. It fails when a claim holds one of the GPUs or the caller does not have the locks.
func (s *stage) Reset(ctx context.Context, gpus []string, touch func()) (time.Time, error) {
	var err error
	var hang chan struct{}
	s.set(func() {
		s.resets = append(s.resets, strings.Join(gpus, "+"))
		err, hang = s.fail, s.hang
		for _, name := range gpus {
			if s.on[name] > 0 || !slices.Contains(s.inside, name) {
				err = fmt.Errorf("%s is reset under a claim", name)
			}
		}
	})
	touch()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	at := time.Now()
	s.set(func() {
		s.ended++
		s.done = at
	})
	return at, err
}

// order sets the remedies of the GPUNode: "id gpu step".
func order(orders ...string) func(*v1alpha1.GPUNode) {
	return func(n *v1alpha1.GPUNode) {
		n.Spec.Remediations = nil
		for _, o := range orders {
			parts := strings.Fields(o)
			n.Spec.Remediations = append(n.Spec.Remediations, v1alpha1.Remediation{ID: parts[0], GPU: parts[1], Step: v1alpha1.RemediationOrder(parts[2]), Reason: "XID 48"})
		}
	}
}

// expectRemedies checks the remedies of the status: "id state prepared message".
func (s *stage) expectRemedies(t *testing.T, when string, want ...string) {
	t.Helper()
	var remedies []v1alpha1.AgentRemediation
	s.set(func() { remedies = s.status.Remedies })
	var got []string
	for _, r := range remedies {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", r.ID, r.State, r.PreparedClaims, r.Message)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// expectResets checks which GPUs were reset.
func (s *stage) expectResets(t *testing.T, when string, want ...string) {
	t.Helper()
	s.set(func() {
		if diff := cmp.Diff(want, s.resets); diff != "" {
			t.Errorf("%s: resets (-want +got):\n%s", when, diff)
		}
	})
}

// expectHeld checks which GPUs are held.
func (s *stage) expectHeld(t *testing.T, when string, want ...string) {
	t.Helper()
	s.set(func() {
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(s.held))); diff != "" {
			t.Errorf("%s: held (-want +got):\n%s", when, diff)
		}
	})
}

// use sets how many claims hold a device of the GPU.
func (s *stage) use(name string, claims int) {
	s.set(func() {
		if s.on == nil {
			s.on = map[string]int{}
		}
		s.on[name] = claims
	})
}

func TestRemedyHoldResetValidate(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.use("gpu-b", 1)
		leave, err := s.gate.Enter(t.Context(), users, []string{"gpu-b"})
		if err != nil {
			t.Fatal(err)
		}
		s.change(order("1 gpu-a Hold"))
		pass(time.Minute)
		s.expectRemedies(t, "while a call is on its way")
		s.expectHeld(t, "while a call is on its way", "gpu-a", "gpu-b")
		leave()
		pass(time.Second)
		s.expectRemedies(t, "after it ended", "1 Holding 1")
		s.expectClosed(t, 1)
		if _, err := s.gate.Enter(t.Context(), users, []string{"gpu-a"}); err == nil {
			t.Error("a claim was admitted on a held GPU")
		}
		enterGPU(t, s.gate, "gpu-c")

		s.change(order("1 gpu-a Reset"))
		pass(time.Hour)
		s.expectRemedies(t, "with a claim", "1 Holding 1 waiting for 1 claims on gpu-a, gpu-b to be released")
		s.expectResets(t, "with a claim")
		s.use("gpu-b", 0)
		pass(time.Second)
		s.expectResets(t, "after the claim", "gpu-a+gpu-b")
		pass(time.Second)
		s.expectRemedies(t, "after the reset", "1 Reset 0")

		s.change(order("1 gpu-a Validate"))
		pass(time.Hour)
		s.expectRemedies(t, "while it is validated", "1 Reset 0")
		if _, err := s.gate.Enter(t.Context(), users, []string{"gpu-a"}); err == nil {
			t.Error("a user was admitted during the validation")
		}
		if leave, err := s.gate.Enter(t.Context(), validator, []string{"gpu-a"}); err != nil {
			t.Errorf("the validation: %v", err)
		} else {
			leave()
		}
		s.change(order())
		pass(time.Second)
		s.expectRemedies(t, "at the end")
		s.expectHeld(t, "at the end")
		enterGPU(t, s.gate, "gpu-a")
		s.expectResets(t, "at the end", "gpu-a+gpu-b")
	})
}

func enterGPU(t *testing.T, g *Gate, name string) {
	t.Helper()
	leave, err := g.Enter(t.Context(), users, []string{name})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	leave()
}

// Each ID is reset once, and resets of two GPUs do not wait for each other.
func TestOneResetPerID(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.set(func() { s.fail = errors.New("the GPU could not be reset: Unknown Error") })
		s.change(order("1 gpu-c Reset", "2 gpu-a Hold"))
		pass(time.Hour)
		s.expectRemedies(t, "failed", "2 Holding 0", "1 Failed 0 the GPU could not be reset: Unknown Error")
		s.expectResets(t, "failed", "gpu-c")
		s.set(func() { s.fail = nil })
		pass(time.Hour)
		s.expectResets(t, "the same ID", "gpu-c")
		s.change(order("3 gpu-c Reset", "2 gpu-a Reset"))
		pass(time.Minute)
		s.expectRemedies(t, "another ID", "2 Reset 0", "3 Reset 0")
		s.set(func() { slices.Sort(s.resets) })
		s.expectResets(t, "another ID", "gpu-a+gpu-b", "gpu-c", "gpu-c")
		s.change(order("4 gpu-d Reset"))
		pass(time.Minute)
		s.expectResets(t, "a GPU that does not exist", "gpu-a+gpu-b", "gpu-c", "gpu-c", "gpu-d")
	})
}

// A process outside of Kubernetes uses the GPU.
func TestResetRetriesBusyGPU(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		busy := fmt.Errorf("processes [4711] use gpu-c: %w", gpu.ErrBusy)
		s.set(func() { s.fail = busy })
		s.change(order("1 gpu-c Reset"))
		pass(time.Minute)
		s.expectRemedies(t, "for a minute", "1 Holding 0 "+busy.Error())
		s.set(func() { s.fail = nil })
		pass(2 * time.Minute)
		s.expectRemedies(t, "after it ended", "1 Reset 0")

		s.set(func() { s.fail = busy })
		s.change(order("2 gpu-c Reset"))
		before := s.writes()
		var tried int
		s.set(func() { tried = len(s.resets) })
		pass(time.Hour)
		if writes := s.writes(); writes-before > 6 {
			t.Errorf("%d writes while a process uses the GPU", writes-before)
		}
		// It was not reset, so the reset has not failed: it may still begin.
		s.expectRemedies(t, "for long", "2 Holding 0 "+busy.Error())
		s.set(func() {
			if tried = len(s.resets) - tried; tried < 10 || tried > 20 {
				t.Errorf("the driver was closed %d times in an hour", tried)
			}
		})
		s.set(func() { s.fail, s.hang = nil, make(chan struct{}) })
		pass(maxBusyRetryDelay + busyReportDelay)
		s.expectRemedies(t, "during the reset", "2 Resetting 0")
		close(s.hang)
		pass(2 * time.Second)
		s.expectRemedies(t, "after the reset", "2 Reset 0")
	})
}

// The reset group of a hold does not shrink when links fail, also not for an agent that starts later.
func TestHoldKeepsResetGroup(t *testing.T) {
	node := &v1alpha1.GPUNode{}
	order("1 gpu-a Reset")(node)
	alone := func(name string) []string { return []string{name} }
	before := desiredClosure(node, linkedGPUs, Closure{})
	if diff := cmp.Diff(before, desiredClosure(node, alone, before)); diff != "" {
		t.Errorf("after the links failed (-want +got):\n%s", diff)
	}
	if got := desiredClosure(node, linkedGPUs, desiredClosure(node, alone, Closure{})); !got.equal(before) {
		t.Errorf("after another link appeared: %v", got)
	}
	order("2 gpu-a Reset")(node)
	if got := desiredClosure(node, alone, before); !slices.Equal(got.Holds[0].GPUs, []string{"gpu-a"}) {
		t.Errorf("another attempt: %v", got)
	}
	perform(t, func(t *testing.T, s *stage, dir string) {
		s.use("gpu-b", 1)
		s.change(order("1 gpu-a Reset"))
		pass(time.Second)
		s.stop()
		s.set(func() { s.unlinked = true })
		s.run(t, dir)
		pass(5 * time.Second)
		s.expectHeld(t, "restarted", "gpu-a", "gpu-b")
		s.use("gpu-b", 0)
		pass(5 * time.Second)
		s.expectResets(t, "restarted", "gpu-a+gpu-b")
	})
}

// A call that hangs keeps the GPU's lock: the reset waits, and reports the holder.
func TestResetWaitsForLocks(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.set(func() { s.locked = map[string]bool{"gpu-b": true} })
		s.change(order("1 gpu-a Reset"))
		pass(lockTimeout + 5*time.Second)
		s.expectRemedies(t, "locked", "1 Holding 0 the reset of gpu-a: waiting for [gpu-a gpu-b], held by claim default/slow: context deadline exceeded")
		s.expectResets(t, "locked")
		s.set(func() { s.locked = nil })
		pass(lockTimeout)
		s.expectRemedies(t, "free", "1 Reset 0")
	})
}

// An order that is withdrawn while the reset waits for the GPU's lock is not executed, nor one on a GPU that a claim entered meanwhile.
func TestResetIsWithdrawn(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.set(func() { s.locked = map[string]bool{"gpu-c": true} })
		s.change(order("1 gpu-c Reset"))
		pass(5 * time.Second)
		s.change(order())
		pass(5 * time.Second)
		leave, err := s.gate.Enter(t.Context(), users, []string{"gpu-c"})
		if err != nil {
			t.Fatal(err)
		}
		s.set(func() { s.locked = nil })
		pass(5 * time.Second)
		s.expectResets(t, "withdrawn")

		s.set(func() { s.locked = map[string]bool{"gpu-a": true} })
		s.change(order("2 gpu-a Reset"))
		pass(5 * time.Second)
		s.change(order("2 gpu-a Hold"))
		s.set(func() { s.locked = nil })
		pass(5 * time.Second)
		s.expectResets(t, "only held")

		// The same order again, after it was withdrawn and a call was admitted that has no record yet.
		s.change(order())
		s.set(func() { s.locked = map[string]bool{"gpu-c": true} })
		pass(time.Second)
		s.change(order("3 gpu-c Reset"))
		pass(time.Minute)
		s.set(func() { s.locked = nil })
		pass(5 * time.Second)
		s.expectResets(t, "while a claim is being prepared")
		leave()
		pass(5 * time.Second)
		s.expectResets(t, "after the claim", "gpu-c")
	})
}

// The reset checks for claims again once it has the locks.
func TestResetChecksClaimsUnderLock(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.set(func() { s.locked = map[string]bool{"gpu-c": true} })
		s.change(order("1 gpu-c Reset"))
		pass(10 * time.Second)
		s.use("gpu-c", 1)
		s.set(func() { s.locked = nil })
		pass(10 * time.Second)
		s.expectResets(t, "with a claim")
		s.expectRemedies(t, "with a claim", "1 Holding 1 waiting for 1 claims on gpu-c to be released")
		s.use("gpu-c", 0)
		pass(10 * time.Second)
		s.expectResets(t, "after the claim", "gpu-c")
	})
}

// The process ends at every point: before the reset, during it, and before its outcome is reported.
func TestResetAcrossRestarts(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, dir string) {
		restart := func() {
			s.stop()
			s.set(func() { s.held = nil })
			s.run(t, dir)
			pass(5 * time.Second)
		}
		s.use("gpu-c", 1)
		s.change(order("1 gpu-c Reset"))
		pass(time.Second)
		s.set(func() { s.away = true })
		restart()
		s.expectHeld(t, "restarted without an API server", "gpu-c")
		if _, err := s.gate.Enter(t.Context(), users, []string{"gpu-c"}); err == nil {
			t.Error("restarted without an API server: a claim was admitted")
		}
		enterGPU(t, s.gate, "gpu-a")
		s.set(func() { s.away = false })
		pass(10 * time.Second)
		s.expectResets(t, "restarted with a claim")

		// Killed during the reset: there is no outcome.
		never, hang := make(chan struct{}), make(chan struct{})
		s.set(func() { s.hang = never })
		s.use("gpu-c", 0)
		pass(2 * time.Second)
		s.expectRemedies(t, "during the reset", "1 Resetting 0")
		killed := s.stopLeading()
		s.set(func() { s.inside, s.hang = nil, hang }) // the locks of a process end with it
		s.run(t, dir)
		pass(2 * time.Second)
		s.expectResets(t, "killed during the reset", "gpu-c", "gpu-c")
		close(hang)
		pass(5 * time.Second)
		s.expectRemedies(t, "done", "1 Reset 0")
		s.set(func() { s.hang = nil })

		restart()
		s.expectRemedies(t, "restarted after it", "1 Reset 0")
		s.expectResets(t, "restarted after it", "gpu-c", "gpu-c")
		close(never)
		<-killed

		// The GPUNode is deleted and restored.
		s.change(order())
		pass(outcomeRetention - time.Minute)
		s.change(order("2 gpu-a Hold"))
		pass(time.Second)
		s.change(order("1 gpu-c Reset"))
		pass(10 * time.Second)
		s.expectRemedies(t, "ordered again", "1 Reset 0")
		s.expectResets(t, "ordered again", "gpu-c", "gpu-c")
		s.change(order())
		pass(outcomeRetention + time.Minute)
		s.change(order("2 gpu-a Hold"))
		pass(time.Second)
		if left, err := os.ReadDir(filepath.Join(dir, resetsDir)); len(left) != 0 || err != nil {
			t.Errorf("outcomes left: %v, %v", left, err)
		}
	})
}

// stopLeading stops the enforcer without waiting for the resets that have begun; the channel is closed when these have ended.
func (s *stage) stopLeading() <-chan struct{} {
	ended, stop := make(chan struct{}), s.stop
	go func() {
		defer close(ended)
		stop()
	}()
	synctest.Wait()
	return ended
}

// An agent that stops leading finishes its reset; the newer one waits for it and does not repeat it.
func TestResetOfFormerLeader(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, dir string) {
		hang := make(chan struct{})
		s.set(func() { s.hang = hang })
		s.change(order("1 gpu-c Reset"))
		pass(2 * time.Second)
		older := s.stopLeading()
		s.run(t, dir)
		pass(10 * time.Second)
		s.expectRemedies(t, "while the older agent resets", "1 Holding 0")
		s.set(func() { s.published = nil })
		close(hang)
		pass(10 * time.Second)
		s.expectRemedies(t, "after the claim", "1 Reset 0")
		s.expectResets(t, "after the claim", "gpu-c")
		<-older
		s.set(func() {
			if diff := cmp.Diff([]string{"gpu-c", "gpu-c"}, s.published); diff != "" {
				t.Errorf("WasReset of both agents (-want +got):\n%s", diff)
			}
		})
	})
}

// An unreadable outcome, or one of another ID, counts as none.
func TestUnreadableOutcomes(t *testing.T) {
	g := gate(t, t.TempDir(), true)
	want := Outcome{ID: "1", State: v1alpha1.RemediationStateFailed, Message: "no", GPUs: []string{"gpu-a"}, At: time.Now().Round(0)}
	if err := g.saveOutcome(want); err != nil {
		t.Fatal(err)
	}
	got, err := g.loadOutcome("1")
	if diff := cmp.Diff(&want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", "{", `{"id":"2","state":"Reset"}`} {
		if err := os.WriteFile(g.outcomePath("1"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := g.loadOutcome("1"); got != nil || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	writing := filepath.Join(g.path(resetsDir), "."+filepath.Base(g.outcomePath("1"))+".tmp")
	if err := os.WriteFile(writing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.saveOutcome(Outcome{ID: "gone"}), g.pruneOutcomes([]Hold{{ID: "1"}}, nil)); err != nil {
		t.Error(err)
	}
	if kept, err := g.loadOutcome("gone"); kept == nil || err != nil {
		t.Errorf("of a remedy that ended just now: %v, %v", kept, err)
	}
	past := time.Now().Add(-2 * outcomeRetention)
	if err := errors.Join(os.Chtimes(g.outcomePath("gone"), past, past), g.pruneOutcomes(nil, nil)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(writing); err != nil {
		t.Errorf("a file that is being written was removed: %v", err)
	}
	if gone, err := g.loadOutcome("gone"); gone != nil || err != nil {
		t.Errorf("of a remedy that ended long ago: %v, %v", gone, err)
	}
	if g.outcomePath("../../1") == g.outcomePath("1") || filepath.Dir(g.outcomePath("../../1")) != g.path(resetsDir) {
		t.Error(g.outcomePath("../../1"))
	}
}

// TestDeviceTaintIsPublished passes on spec.deviceTaint when it is set, to a new agent before it has read the GPUNode, and when it is removed.
func TestDeviceTaintIsPublished(t *testing.T) {
	var taints []string
	dir := t.TempDir()
	start := func() *Enforcer {
		return NewEnforcer(Config{
			Gate: gate(t, dir, true), Closed: func() {}, Hold: func(map[string]string) {}, Group: func(string) []string { return nil },
			Taint: func(operation string) { taints = append(taints, operation) },
		})
	}
	apply := func(e *Enforcer, operation v1alpha1.Operation) {
		t.Helper()
		if err := e.Apply(t.Context(), &v1alpha1.GPUNode{Spec: v1alpha1.GPUNodeSpec{DeviceTaint: operation}}); err != nil {
			t.Fatal(err)
		}
	}
	first := start()
	first.Start()
	apply(first, v1alpha1.OperationDriverSwap)
	second := start()
	second.Start()
	apply(second, v1alpha1.OperationDriverSwap)
	apply(second, "")
	if diff := cmp.Diff([]string{"", "DriverSwap", "DriverSwap", "DriverSwap", ""}, taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}
