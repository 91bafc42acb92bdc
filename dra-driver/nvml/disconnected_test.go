package nvml

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// A reset requires that no process has the GPU open: it works only within Disconnected, also during WatchEvents.
func TestDisconnected(t *testing.T) {
	s, dir := open(t, "h100x2")
	e := listen(t, s, dir)
	reset := func(ctx context.Context) error {
		output, err := exec.CommandContext(ctx, fakegpu.SMI(dir), "-r", "-i", "1").CombinedOutput()
		if err != nil {
			return errors.New(string(output))
		}
		return nil
	}
	must(t, fakegpu.RequireReset(dir, 1))
	if err := reset(t.Context()); err == nil || !strings.Contains(err.Error(), "In use by another client") {
		t.Errorf("a reset during the session: %v", err)
	}
	waiting := make(chan error, 1)
	err := s.Disconnected(t.Context(), func(ctx context.Context) error {
		go func() {
			_, err := s.Mode(ctx, gputest.Node(t, "h100x2").GPUs[0].Name())
			waiting <- err
		}()
		return reset(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("a call meanwhile: %v", err)
	}
	e.received(1)
	if got := check(t, s, gputest.Node(t, "h100x2").GPUs[1].Name()); got.UUID == "" {
		t.Errorf("after the reset: %+v", got)
	}
}

func TestDisconnectedWithErrors(t *testing.T) {
	s, dir := open(t, "h100x2")
	name := gputest.Node(t, "h100x2").GPUs[0].Name()
	refused := errors.New("refused")
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Disconnected(ctx, func(context.Context) error {
		cancel()
		return refused
	})
	if !errors.Is(err, refused) || errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("got %v, want %v", err, refused)
	}
	check(t, s, name) // connected again

	never := func(context.Context) error {
		t.Error("was run")
		return nil
	}
	if err := s.Disconnected(ctx, never); !errors.Is(err, context.Canceled) {
		t.Errorf("no time: %v", err)
	}
	err = s.Disconnected(t.Context(), func(context.Context) error { return errors.Join(refused, fakegpu.RemoveDriver(dir)) })
	if !errors.Is(err, refused) || !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("the driver goes meanwhile: %v", err)
	}
	if err := s.Disconnected(t.Context(), never); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("without a driver: %v", err)
	}
	must(t, fakegpu.RestoreDriver(dir))
	must(t, s.Reopen(t.Context()))
	check(t, s, name)
}

// A call that hangs in the driver blocks neither the other calls nor Disconnected, even if calls overlap for as long as
// they like.
func TestDisconnectedWhileACallHangs(t *testing.T) {
	s, _ := open(t, "h100x2")
	name := gputest.Node(t, "h100x2").GPUs[0].Name()
	must(t, s.useConnection(t.Context())) // hangs
	for what, change := range map[string]func(context.Context) error{
		"Apart": func(ctx context.Context) error {
			return s.Disconnected(ctx, func(context.Context) error {
				t.Error("was run")
				return nil
			})
		},
		"Reopen": s.Reopen,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := change(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		check(t, s, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() { waits <- s.Disconnected(ctx, func(context.Context) error { return nil }) }()
	for s.connection.wanted.Load() == 0 {
		runtime.Gosched()
	}
	check(t, s, name) // after it has waited
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("without an end: %v", err)
	}
	s.leaveConnection()

	// Calls in close succession do not keep it from locking.
	busy, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for s.useConnection(busy) == nil {
				sleep(busy, time.Millisecond)
				s.leaveConnection()
			}
		})
	}
	limited, done := context.WithTimeout(t.Context(), harness.Patience)
	defer done()
	if err := s.Disconnected(limited, func(context.Context) error { return nil }); err != nil {
		t.Errorf("during many calls: %v", err)
	}
	stop()
	calls.Wait()
}

func TestUsers(t *testing.T) {
	s, dir := open(t, "h100x2")
	gpus := gputest.Node(t, "h100x2").GPUs
	must(t, s.SetMode(t.Context(), gpus[1].Name(), gpu.ModeEnabled))
	mig := carve(t, s, gpus[1].Name(), gpu.Placement{Profile: 19, Start: 2, Size: 1})
	for pid, at := range map[uint32]fakegpu.Place{31: fakegpu.On(0), 12: fakegpu.On(0), 77: {GPU: 1, Instance: mig.GI, Compute: mig.CI}} {
		must(t, fakegpu.StartProcess(dir, at, pid, 1<<20))
	}
	for index, want := range [][]int{{12, 31}, {77}} {
		got, err := s.Users(t.Context(), gpus[index].Name())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("GPU %d (-want +got):\n%s", index, diff)
		}
	}
	for index, want := range [][]gpu.Process{{{PID: 12, GI: gpu.NoInstance}, {PID: 31, GI: gpu.NoInstance}}, {{PID: 77, GI: mig.GI}}} {
		got, err := s.Processes(t.Context(), gpus[index].Name())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, func(a, b gpu.Process) int { return a.PID - b.PID })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("processes of GPU %d (-want +got):\n%s", index, diff)
		}
	}
	must(t, fakegpu.Lose(dir, 0))
	if _, err := s.Users(t.Context(), gpus[0].Name()); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("of a lost GPU: %v", err)
	}
}
