package gpunode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// bench is what the keeper's remedies work on; its fields are the stage's.
type bench struct {
	// held is what the inventory was told last.
	held map[string]string
	// on is how many claims hold something of a GPU.
	on map[string]int
	// fail is what the next reset answers; hang holds it up.
	fail error
	hang chan struct{}
	// resets are the resets that began, ended how many came to their end.
	resets []string
	ended  int
	// learned are the GPUs of which the health was told that they were reset; done is when the last was.
	learned []string
	done    time.Time
	// apart is whether the links of all GPUs have failed.
	apart bool
	// locked are GPUs that somebody works on, inside those under Exclusive now.
	locked map[string]bool
	inside []string
}

// pairs are reset together: gpu-a with gpu-b.
func pairs(name string) []string {
	switch name {
	case "gpu-a", "gpu-b":
		return []string{"gpu-b", "gpu-a"}
	case "gpu-c":
		return []string{name}
	}
	return nil
}

func (s *stage) remedies() Remedies {
	return Remedies{
		Resetter: s,
		Group: func(name string) []string {
			s.state.Lock()
			defer s.state.Unlock()
			if s.apart {
				return []string{name}
			}
			return pairs(name)
		},
		WasReset: func(gpus []string, at time.Time) {
			s.set(func() {
				s.learned = append(s.learned, strings.Join(gpus, "+"))
				if !at.Equal(s.done) {
					s.learned = append(s.learned, "at another time")
				}
			})
		},
		Hold: func(held map[string]string) { s.set(func() { s.held = maps.Clone(held) }) },
		Prepared: func(gpus []string) (int, error) {
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

// exclusive is as strict as locks: it waits while somebody works on one of the GPUs.
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

// Reset is the hardware's.
func (s *stage) Reset(ctx context.Context, gpus []string, touch func()) (time.Time, error) {
	var err error
	var hang chan struct{}
	s.set(func() {
		s.resets = append(s.resets, strings.Join(gpus, "+"))
		err, hang = s.fail, s.hang
		for _, name := range gpus {
			if s.on[name] > 0 || !slices.Contains(s.inside, name) {
				err = fmt.Errorf("%s is reset below a claim", name)
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
		n.Spec.Remedies = nil
		for _, o := range orders {
			parts := strings.Fields(o)
			n.Spec.Remedies = append(n.Spec.Remedies, v1alpha1.Remedy{ID: parts[0], GPU: parts[1], Step: v1alpha1.RemedyOrder(parts[2]), Reason: "XID 48"})
		}
	}
}

// says checks what status.agent says of remedies: "id state prepared message".
func (s *stage) says(t *testing.T, when string, want ...string) {
	t.Helper()
	told, _ := s.told()
	var got []string
	for _, r := range told.Remedies {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", r.ID, r.State, r.Prepared, r.Message)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// was checks which GPUs were reset.
func (s *stage) was(t *testing.T, when string, want ...string) {
	t.Helper()
	s.set(func() {
		if diff := cmp.Diff(want, s.resets); diff != "" {
			t.Errorf("%s: resets (-want +got):\n%s", when, diff)
		}
	})
}

func (s *stage) holds(t *testing.T, when string, want ...string) {
	t.Helper()
	s.set(func() {
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(s.held))); diff != "" {
			t.Errorf("%s: held (-want +got):\n%s", when, diff)
		}
	})
}

func (s *stage) use(name string, claims int) {
	s.set(func() {
		if s.on == nil {
			s.on = map[string]int{}
		}
		s.on[name] = claims
	})
}

func TestRemedy(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.use("gpu-b", 1)
		leave, err := s.gate.Enter(t.Context(), users, []string{"gpu-b"})
		if err != nil {
			t.Fatal(err)
		}
		s.change(order("1 gpu-a Hold"))
		pass(time.Minute)
		s.says(t, "while a call is on its way")
		s.holds(t, "while a call is on its way", "gpu-a", "gpu-b")
		leave()
		pass(time.Second)
		s.says(t, "after it ended", "1 Holding 1")
		s.calledBack(t, 1)
		if _, err := s.gate.Enter(t.Context(), users, []string{"gpu-a"}); err == nil {
			t.Error("a claim passed on a GPU that is held")
		}
		enterGPU(t, s.gate, "gpu-c")

		s.change(order("1 gpu-a Reset"))
		pass(time.Hour)
		s.says(t, "below a claim", "1 Holding 1 waiting for 1 claims on gpu-a, gpu-b to be taken back")
		s.was(t, "below a claim")
		s.use("gpu-b", 0)
		pass(time.Second)
		s.was(t, "after the claim", "gpu-a+gpu-b")
		pass(time.Second)
		s.says(t, "after the reset", "1 Reset 0")

		s.change(order("1 gpu-a Validate"))
		pass(time.Hour)
		s.says(t, "while it is validated", "1 Reset 0")
		if _, err := s.gate.Enter(t.Context(), users, []string{"gpu-a"}); err == nil {
			t.Error("a user passed while it is validated")
		}
		if leave, err := s.gate.Enter(t.Context(), validator, []string{"gpu-a"}); err != nil {
			t.Errorf("the validation: %v", err)
		} else {
			leave()
		}
		s.change(order())
		pass(time.Second)
		s.says(t, "at the end")
		s.holds(t, "at the end")
		enterGPU(t, s.gate, "gpu-a")
		s.was(t, "at the end", "gpu-a+gpu-b")
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

// Each ID is a reset, and two GPUs do not wait for each other.
func TestResetsByID(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.set(func() { s.fail = errors.New("the GPU could not be reset: Unknown Error") })
		s.change(order("1 gpu-c Reset", "2 gpu-a Hold"))
		pass(time.Hour)
		s.says(t, "failed", "2 Holding 0", "1 Failed 0 the GPU could not be reset: Unknown Error")
		s.was(t, "failed", "gpu-c")
		s.set(func() { s.fail = nil })
		pass(time.Hour)
		s.was(t, "the same ID", "gpu-c")
		s.change(order("3 gpu-c Reset", "2 gpu-a Reset"))
		pass(time.Minute)
		s.says(t, "another ID", "2 Reset 0", "3 Reset 0")
		s.set(func() { slices.Sort(s.resets) })
		s.was(t, "another ID", "gpu-a+gpu-b", "gpu-c", "gpu-c")
		s.change(order("4 gpu-d Reset"))
		pass(time.Minute)
		s.was(t, "a GPU that is not there", "gpu-a+gpu-b", "gpu-c", "gpu-c", "gpu-d")
	})
}

// Somebody outside of Kubernetes has the GPU open.
func TestBusy(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		busy := fmt.Errorf("processes [4711] use gpu-c: %w", gpu.ErrBusy)
		s.set(func() { s.fail = busy })
		s.change(order("1 gpu-c Reset"))
		pass(time.Minute)
		s.says(t, "for a minute", "1 Holding 0 "+busy.Error())
		s.set(func() { s.fail = nil })
		pass(2 * time.Minute)
		s.says(t, "after it ended", "1 Reset 0")

		s.set(func() { s.fail = busy })
		s.change(order("2 gpu-c Reset"))
		_, before := s.told()
		var tried int
		s.set(func() { tried = len(s.resets) })
		pass(time.Hour)
		if _, writes := s.told(); writes-before > 6 {
			t.Errorf("%d writes while somebody has the GPU open", writes-before)
		}
		// It was not reset, so the reset has not failed: it may begin yet.
		s.says(t, "for long", "2 Holding 0 "+busy.Error())
		s.set(func() {
			if tried = len(s.resets) - tried; tried < 10 || tried > 20 {
				t.Errorf("the driver was closed %d times in an hour", tried)
			}
		})
		s.set(func() { s.fail, s.hang = nil, make(chan struct{}) })
		pass(busyLongest + busySays)
		s.says(t, "while it is reset at last", "2 Resetting 0")
		close(s.hang)
		pass(2 * time.Second)
		s.says(t, "after it ended at last", "2 Reset 0")
	})
}

// Links that fail while a GPU is held leave out nobody that is reset with it, also for an agent that is started meanwhile.
func TestGroupStays(t *testing.T) {
	node := &v1alpha1.GPUNode{}
	order("1 gpu-a Reset")(node)
	alone := func(name string) []string { return []string{name} }
	before := closureOf(node, pairs, Closure{})
	if diff := cmp.Diff(before, closureOf(node, alone, before)); diff != "" {
		t.Errorf("after the links failed (-want +got):\n%s", diff)
	}
	if got := closureOf(node, pairs, closureOf(node, alone, Closure{})); !got.equal(before) {
		t.Errorf("after another link was seen: %v", got)
	}
	order("2 gpu-a Reset")(node)
	if got := closureOf(node, alone, before); !slices.Equal(got.Holds[0].GPUs, []string{"gpu-a"}) {
		t.Errorf("another attempt: %v", got)
	}
	perform(t, func(t *testing.T, s *stage, dir string) {
		s.use("gpu-b", 1)
		s.change(order("1 gpu-a Reset"))
		pass(time.Second)
		s.stop()
		s.set(func() { s.apart = true })
		s.run(t, dir)
		pass(5 * time.Second)
		s.holds(t, "started anew", "gpu-a", "gpu-b")
		s.use("gpu-b", 0)
		pass(5 * time.Second)
		s.was(t, "started anew", "gpu-a+gpu-b")
	})
}

// A call that hangs keeps the GPU's lock: the reset waits, and says for whom.
func TestResetWaitsForLocks(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.set(func() { s.locked = map[string]bool{"gpu-b": true} })
		s.change(order("1 gpu-a Reset"))
		pass(lockPatience + 5*time.Second)
		s.says(t, "locked", "1 Holding 0 the reset of gpu-a: waiting for [gpu-a gpu-b], held by claim default/slow: context deadline exceeded")
		s.was(t, "locked")
		s.set(func() { s.locked = nil })
		pass(lockPatience)
		s.says(t, "free", "1 Reset 0")
	})
}

// An order that is taken back while the reset waits for the GPU's lock is not carried out; nor is one below a claim that came in meanwhile.
func TestResetIsTakenBack(t *testing.T) {
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
		s.was(t, "taken back")

		s.set(func() { s.locked = map[string]bool{"gpu-a": true} })
		s.change(order("2 gpu-a Reset"))
		pass(5 * time.Second)
		s.change(order("2 gpu-a Hold"))
		s.set(func() { s.locked = nil })
		pass(5 * time.Second)
		s.was(t, "only held")

		// The same order again, after it was taken back while somebody passed who has no record yet.
		s.change(order())
		s.set(func() { s.locked = map[string]bool{"gpu-c": true} })
		pass(time.Second)
		s.change(order("3 gpu-c Reset"))
		pass(time.Minute)
		s.set(func() { s.locked = nil })
		pass(5 * time.Second)
		s.was(t, "below a claim that is being prepared")
		leave()
		pass(5 * time.Second)
		s.was(t, "after it", "gpu-c")
	})
}

// A claim that passed long ago and was prepared while nobody looked: the reset looks again once it has the locks.
func TestResetLooksAgain(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.set(func() { s.locked = map[string]bool{"gpu-c": true} })
		s.change(order("1 gpu-c Reset"))
		pass(10 * time.Second)
		s.use("gpu-c", 1)
		s.set(func() { s.locked = nil })
		pass(10 * time.Second)
		s.was(t, "below a claim")
		s.says(t, "below a claim", "1 Holding 1 waiting for 1 claims on gpu-c to be taken back")
		s.use("gpu-c", 0)
		pass(10 * time.Second)
		s.was(t, "after it", "gpu-c")
	})
}

// The process ends at every point: before the reset, in the middle of it, and before its end is told.
func TestResetAndRestarts(t *testing.T) {
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
		s.goAway(errors.New("connection refused"))
		restart()
		s.holds(t, "restarted without an API server", "gpu-c")
		if _, err := s.gate.Enter(t.Context(), users, []string{"gpu-c"}); err == nil {
			t.Error("restarted without an API server: a claim passed")
		}
		enterGPU(t, s.gate, "gpu-a")
		s.goAway(nil)
		pass(longestPause)
		s.was(t, "restarted below a claim")

		// Killed in the middle: nothing is known of what became of it.
		never, hang := make(chan struct{}), make(chan struct{})
		s.set(func() { s.hang = never })
		s.use("gpu-c", 0)
		pass(2 * time.Second)
		s.says(t, "in the middle", "1 Resetting 0")
		killed := s.leave()
		s.set(func() { s.inside, s.hang = nil, hang }) // the locks of a process end with it
		s.run(t, dir)
		pass(2 * time.Second)
		s.was(t, "killed in the middle", "gpu-c", "gpu-c")
		close(hang)
		pass(5 * time.Second)
		s.says(t, "done", "1 Reset 0")
		s.set(func() { s.hang = nil })

		restart()
		s.says(t, "restarted after it", "1 Reset 0")
		s.was(t, "restarted after it", "gpu-c", "gpu-c")
		close(never)
		<-killed

		// The GPUNode is deleted and restored.
		s.change(order())
		pass(keepOutcome - time.Minute)
		s.change(order("2 gpu-a Hold"))
		pass(time.Second)
		s.change(order("1 gpu-c Reset"))
		pass(10 * time.Second)
		s.says(t, "asked for again", "1 Reset 0")
		s.was(t, "asked for again", "gpu-c", "gpu-c")
		s.change(order())
		pass(keepOutcome + time.Minute)
		s.change(order("2 gpu-a Hold"))
		pass(time.Second)
		if left, err := os.ReadDir(filepath.Join(dir, resetsDir)); len(left) != 0 || err != nil {
			t.Errorf("left of resets: %v, %v", left, err)
		}
	})
}

// leave ends the leading of the running keeper without waiting for what it has begun; the channel is closed when that has ended.
func (s *stage) leave() <-chan struct{} {
	ended, stop := make(chan struct{}), s.stop
	go func() {
		defer close(ended)
		stop()
	}()
	synctest.Wait()
	return ended
}

// An agent that is overtaken finishes what it began; the newer one waits for it and does not do it again.
func TestResetOfAnOvertakenAgent(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, dir string) {
		hang := make(chan struct{})
		s.set(func() { s.hang = hang })
		s.change(order("1 gpu-c Reset"))
		pass(2 * time.Second)
		older := s.leave()
		s.run(t, dir)
		pass(10 * time.Second)
		s.says(t, "while the older one is at it", "1 Holding 0")
		s.set(func() { s.learned = nil })
		close(hang)
		pass(10 * time.Second)
		s.says(t, "after it", "1 Reset 0")
		s.was(t, "after it", "gpu-c")
		<-older
		s.set(func() {
			if diff := cmp.Diff([]string{"gpu-c", "gpu-c"}, s.learned); diff != "" {
				t.Errorf("the health of both agents learns of it (-want +got):\n%s", diff)
			}
		})
	})
}

// A file that says nothing readable of a reset makes it be done again, and one of another ID is not believed.
func TestOutcomesThatCannotBeRead(t *testing.T) {
	g := gate(t, t.TempDir(), true)
	want := Outcome{ID: "1", State: v1alpha1.RemedyFailed, Message: "no", GPUs: []string{"gpu-a"}, At: time.Now().Round(0)}
	if err := g.conclude(want); err != nil {
		t.Fatal(err)
	}
	got, err := g.outcome("1")
	if diff := cmp.Diff(&want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", "{", `{"id":"2","state":"Reset"}`} {
		if err := os.WriteFile(g.outcomePath("1"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := g.outcome("1"); got != nil || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	writing := filepath.Join(g.path(resetsDir), "."+filepath.Base(g.outcomePath("1"))+".tmp")
	if err := os.WriteFile(writing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.conclude(Outcome{ID: "gone"}), g.tidy([]Hold{{ID: "1"}}, nil)); err != nil {
		t.Error(err)
	}
	if kept, err := g.outcome("gone"); kept == nil || err != nil {
		t.Errorf("of a remedy that ended just now: %v, %v", kept, err)
	}
	past := time.Now().Add(-2 * keepOutcome)
	if err := errors.Join(os.Chtimes(g.outcomePath("gone"), past, past), g.tidy(nil, nil)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(writing); err != nil {
		t.Errorf("what somebody is writing was taken away: %v", err)
	}
	if gone, err := g.outcome("gone"); gone != nil || err != nil {
		t.Errorf("of a remedy that is gone: %v, %v", gone, err)
	}
	if g.outcomePath("../../1") == g.outcomePath("1") || filepath.Dir(g.outcomePath("../../1")) != g.path(resetsDir) {
		t.Error(g.outcomePath("../../1"))
	}
}

// They are what is remembered, whether or not the node still has the GPU.
func TestFaults(t *testing.T) {
	began := time.Date(2026, 11, 22, 18, 0, 0, 5, time.UTC)
	const name = "gpu-gone"
	slice := gpu.Placement{Profile: 19, Start: 3, Size: 1}
	faults := []gpu.Fault{
		{GPU: name, Signal: gpu.SignalHeat, Severity: gpu.Warning, Since: began, Boot: "b"},
		{GPU: name, UUID: "GPU-1", Placement: slice, Signal: gpu.SignalXID, XID: 94, Severity: gpu.Critical, Remedy: gpu.Restart, Since: began, Last: began, Count: 1, Boot: "b"},
		{GPU: name, Signal: gpu.SignalXID, XID: 48, Severity: gpu.Critical, Since: began, Over: began},
		{GPU: name, Signal: gpu.SignalXID, XID: 31, Severity: gpu.Harmless, Since: began},
	}
	got := Faults(faults, gpu.Rules{})
	if len(got) != 2 || got[0].Device != name+"-mig-19-3" || got[0].XID != 94 || got[0].Severity != "Critical" || got[0].Remedy != "Restart" || got[0].Message == "" {
		t.Fatalf("%+v", got)
	}
	for i := range faults {
		f := &faults[i]
		f.Last, f.Count, f.Detail = began.Add(time.Hour), 100000, "100000 errors"
	}
	if diff := cmp.Diff(got, Faults(faults, gpu.Rules{})); diff != "" {
		t.Errorf("a storm of events changes what is told (-before +after):\n%s", diff)
	}
	// The driver goes GPU by GPU: of that nothing is told.
	for _, name := range []string{"gpu-a", name} {
		faults = append(faults, gpu.Fault{GPU: name, Signal: gpu.SignalDriver, Severity: gpu.Critical, Since: began})
		if diff := cmp.Diff(got, Faults(faults, gpu.Rules{})); diff != "" {
			t.Errorf("the driver is away from %s (-before +after):\n%s", name, diff)
		}
	}
	for xid := range 100 {
		faults = append(faults, gpu.Fault{GPU: "gpu-x", Signal: gpu.SignalXID, XID: xid, Severity: gpu.Warning})
	}
	faults[len(faults)-1].Severity = gpu.Fatal
	if got := Faults(faults, gpu.Rules{}); len(got) != mostFaults || got[0].Severity != "Fatal" {
		t.Errorf("of many %d, the first %+v", len(got), got[0])
	}
}
