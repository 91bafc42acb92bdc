package maintenance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/internal/host/lock"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const namespace = "tessera-system"

var (
	swap      = Closure{ID: "1", Operation: "DriverSwap", Reason: "580.65.06 takes the place of 570.172.08"}
	users     = prepare.Ref{UID: "u", Namespace: "default", Name: "training"}
	validator = prepare.Ref{UID: "v", Namespace: namespace, Name: "tessera-validation-node1"}
)

func validating(c Closure) Closure {
	c.Validating = true
	return c
}

func gate(t *testing.T, dir string, leads bool) *Gate {
	t.Helper()
	g, err := OpenGate(nil, dir, namespace, func() bool { return leads })
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func set(t *testing.T, g *Gate, closure Closure) {
	t.Helper()
	if err := g.setClosure(closure); err != nil {
		t.Fatal(err)
	}
}

// enter enters the gate and fails the test if it is refused.
func enter(t *testing.T, g *Gate, claim prepare.Ref) func() {
	t.Helper()
	leave, err := g.Enter(t.Context(), claim, nil)
	if err != nil {
		t.Fatalf("%v: %v", claim, err)
	}
	return leave
}

func TestEnterAdmitsOrRefuses(t *testing.T) {
	held := func(step v1alpha1.RemediationOrder) Closure {
		return Closure{Holds: []Hold{{ID: "r", GPU: "gpu-b", GPUs: []string{"gpu-a", "gpu-b"}, Reason: "XID 48", Step: step}}}
	}
	both := held(v1alpha1.OrderValidate)
	both.ID, both.Operation, both.Reason = swap.ID, swap.Operation, swap.Reason
	const all = "the GPUs of this node are out of service for a DriverSwap: 580.65.06 takes the place of 570.172.08"
	tests := map[string]struct {
		closure Closure
		claim   prepare.Ref
		gpus    []string
		want    string
	}{
		"in service":                                 {Closure{}, users, []string{"gpu-a"}, ""},
		"out of service":                             {swap, users, nil, all},
		"the validation, before its step":            {swap, validator, nil, all},
		"the validation, in its step":                {validating(swap), validator, nil, ""},
		"a user, while it is validated":              {validating(swap), users, nil, all},
		"the validation's name, another namespace":   {validating(swap), prepare.Ref{Namespace: "default", Name: validator.Name}, nil, all},
		"another claim in the installer's namespace": {validating(swap), prepare.Ref{Namespace: namespace, Name: "exporter"}, nil, all},
		"a node in service whose step is outdated":   {Closure{Validating: true}, users, nil, ""},

		"a claim on the held GPU":             {held(v1alpha1.OrderHold), users, []string{"gpu-b"}, "gpu-b is out of service for a remedy: XID 48"},
		"a claim on a GPU of the reset group": {held(v1alpha1.OrderReset), users, []string{"gpu-a", "gpu-c"}, "gpu-a is out of service for a remedy: XID 48"},
		"a claim on another GPU":              {held(v1alpha1.OrderReset), users, []string{"gpu-c"}, ""},
		"a claim that holds no GPU":           {held(v1alpha1.OrderReset), users, nil, ""},
		"the validation, before the reset":    {held(v1alpha1.OrderReset), validator, []string{"gpu-b"}, "gpu-b is out of service for a remedy: XID 48"},
		"the validation, after it":            {held(v1alpha1.OrderValidate), validator, []string{"gpu-b"}, ""},
		"a user, after it":                    {held(v1alpha1.OrderValidate), users, []string{"gpu-b"}, "gpu-b is out of service for a remedy: XID 48"},
		"during a maintenance as well":        {both, validator, []string{"gpu-b"}, all},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := gate(t, t.TempDir(), true)
			set(t, g, test.closure)
			leave, err := g.Enter(t.Context(), test.claim, test.gpus)
			if err == nil {
				leave()
			}
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want || (err != nil) != errors.Is(err, prepare.ErrOutOfService) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Files are compatible with agents that have no holds, in both directions.
func TestClosureOfOtherVersion(t *testing.T) {
	dir := t.TempDir()
	g := gate(t, dir, true)
	old := `{"id":"1","operation":"DriverSwap","reason":"a newer driver","validating":false}`
	if err := os.WriteFile(filepath.Join(dir, closureFile), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	closure, err := g.Closure()
	if diff := cmp.Diff(Closure{ID: "1", Operation: "DriverSwap", Reason: "a newer driver"}, closure); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	set(t, g, Closure{Holds: []Hold{{ID: "r", GPU: "gpu-a", GPUs: []string{"gpu-a"}}}})
	text, err := os.ReadFile(filepath.Join(dir, closureFile))
	if err != nil || !strings.HasPrefix(string(text), `{"id":"","operation":"","reason":"","validating":false,`) {
		t.Errorf("%s, %v", text, err)
	}
}

// Draining a GPU does not wait for calls on other GPUs.
func TestDrainedPerGPU(t *testing.T) {
	dir := t.TempDir()
	newer, older := gate(t, dir, true), gate(t, dir, false)
	older.deadline = time.Now()
	leave, err := older.Enter(t.Context(), users, []string{"gpu-a", "gpu-b"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(want bool, gpus ...string) {
		t.Helper()
		if drained, err := newer.drained(gpus...); err != nil || drained != want {
			t.Errorf("drained on %v: %t, %v, want %t", gpus, drained, err, want)
		}
	}
	check(false)
	check(false, "gpu-b")
	check(false, "gpu-c", "gpu-a")
	check(true, "gpu-c")
	leave()
	check(true)
	check(true, "gpu-a", "gpu-b", "gpu-c")
}

// The closure survives the process, and applies to agents that have not read the GPUNode themselves.
func TestClosureSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	set(t, gate(t, dir, true), swap)
	later := gate(t, dir, true)
	later.deadline = time.Now()
	if _, err := later.Enter(t.Context(), users, nil); !errors.Is(err, prepare.ErrOutOfService) {
		t.Errorf("after a restart: %v", err)
	}
	set(t, later, Closure{})
	enter(t, later, users)()

	set(t, later, swap)
	if err := os.WriteFile(filepath.Join(dir, closureFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := later.Enter(t.Context(), users, nil); err == nil {
		t.Error("an unreadable closure admits claims")
	}
	set(t, later, Closure{})
	enter(t, later, users)()
}

// An agent that does not lead must not write.
func TestOnlyLeaderWrites(t *testing.T) {
	dir := t.TempDir()
	newer, older := gate(t, dir, true), gate(t, dir, false)
	set(t, newer, swap)
	if err := older.setClosure(Closure{}); !errors.Is(err, errNotLeading) {
		t.Errorf("the older agent: %v", err)
	}
	older.deadline = time.Now()
	if _, err := older.Enter(t.Context(), users, nil); !errors.Is(err, prepare.ErrOutOfService) {
		t.Errorf("the older agent admits a claim: %v", err)
	}
}

func TestDrained(t *testing.T) {
	dir := t.TempDir()
	newer, older := gate(t, dir, true), gate(t, dir, false)
	older.deadline = time.Now()
	leave := enter(t, older, users)
	set(t, newer, swap)
	for _, want := range []bool{false, true, true} {
		if drained, err := newer.drained(); err != nil || drained != want {
			t.Fatalf("drained: %t, %v, want %t", drained, err, want)
		}
		if leave != nil {
			leave()
			leave = nil
		}
	}
	if _, err := older.Enter(t.Context(), users, nil); err == nil {
		t.Error("admitted after all calls had ended")
	}
}

// A call reads the closure after it has taken its locks, so that a closure that is set while the call waits for a lock refuses it.
func TestEnterReadsClosureUnderLocks(t *testing.T) {
	dir := t.TempDir()
	newer, older := gate(t, dir, true), gate(t, dir, false)
	older.deadline = time.Now()
	gpus := []string{"gpu-a"}
	held, err := lock.OpenExclusive(nil, older.path(callsFilesOf(gpus)[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	entered := make(chan error, 1)
	go func() {
		leave, err := older.Enter(t.Context(), users, gpus)
		if err == nil {
			leave()
		}
		entered <- err
	}()
	// The call takes the lock of all calls first, then waits for the lock of the GPU.
	for free := true; free; time.Sleep(time.Millisecond) {
		if free, err = newer.isFree(callsFile); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-entered:
			t.Fatalf("the call did not wait for the lock: %v", err)
		default:
		}
	}
	set(t, newer, swap)
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-entered; !errors.Is(err, prepare.ErrOutOfService) {
		t.Errorf("got %v, want a refusal by the closure that was set meanwhile", err)
	}
}

// Two agents serve calls while maintenances begin and end: once a closure is drained, no call is inside and none is admitted.
func TestDrainedClosureAdmitsNoCall(t *testing.T) {
	dir := t.TempDir()
	newer, older := gate(t, dir, true), gate(t, dir, false)
	older.deadline = time.Now()
	var inside, passed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, g := range []*Gate{newer, older} {
		callers.Go(func() {
			for ctx.Err() == nil {
				leave, err := g.Enter(ctx, users, nil)
				if err != nil {
					continue
				}
				inside.Add(1)
				passed.Add(1)
				inside.Add(-1)
				leave()
			}
		})
	}
	for range 50 {
		set(t, newer, swap)
		for drained := false; !drained; {
			var err error
			if drained, err = newer.drained(); err != nil {
				t.Fatal(err)
			}
		}
		before := passed.Load()
		if n := inside.Load(); n != 0 {
			t.Fatalf("%d calls are inside", n)
		}
		if _, err := older.Enter(ctx, users, nil); err == nil {
			t.Fatal("admitted after it was drained")
		}
		if after := passed.Load(); after != before {
			t.Fatalf("%d calls were admitted after it was drained", after-before)
		}
		set(t, newer, Closure{})
		enter(t, older, users)()
	}
	cancel()
	callers.Wait()
	if passed.Load() == 0 {
		t.Error("no call was ever admitted: nothing is tested")
	}
}

func TestFirstCallsWaitForGPUNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		set(t, gate(t, dir, true), swap)
		g := gate(t, dir, true)
		begun := time.Now()
		go func() {
			<-time.After(2 * time.Second)
			if err := g.setClosure(Closure{}); err != nil {
				t.Error(err)
			}
		}()
		enter(t, g, users)()
		if waited := time.Since(begun); waited != 2*time.Second {
			t.Errorf("waited %v, want until the GPUNode was read", waited)
		}

		set(t, g, swap)
		g, begun = gate(t, dir, true), time.Now()
		if _, err := g.Enter(t.Context(), users, nil); !errors.Is(err, prepare.ErrOutOfService) {
			t.Errorf("API server unreachable: %v", err)
		}
		if waited := time.Since(begun); waited != firstReadTimeout {
			t.Errorf("waited %v, want %v", waited, firstReadTimeout)
		}
		if _, err := g.Enter(t.Context(), users, nil); err == nil || time.Since(begun) != firstReadTimeout {
			t.Errorf("the second call: %v after %v", err, time.Since(begun))
		}
	})
}
