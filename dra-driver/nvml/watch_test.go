package nvml

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// beacon is the XID with which the tests detect that the watch has started.
const beacon = 999

// recorder is a caller of WatchEvents.
type recorder struct {
	t      *testing.T
	dir    string
	events chan gpu.Event
	ended  chan error
	cancel context.CancelFunc
}

// listen starts a watch and returns when an XID of GPU 0 arrives.
func listen(t *testing.T, s *Session, dir string) *recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := &recorder{t: t, dir: dir, events: make(chan gpu.Event, 5000), ended: make(chan error, 1), cancel: cancel}
	t.Cleanup(cancel)
	go func() { e.ended <- s.WatchEvents(ctx, func(event gpu.Event) { e.events <- event }) }()
	e.received(0)
	return e
}

// received returns when XIDs of the GPU arrive, and discards all others.
func (e *recorder) received(index int) {
	e.t.Helper()
	name := gputest.Node(e.t, "h100x2").GPUs[index].Name()
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); {
		must(e.t, fakegpu.XID(e.dir, fakegpu.On(index), beacon))
		select {
		case event := <-e.events:
			if event.GPU == name && event.XID == beacon {
				return
			}
		case err := <-e.ended:
			e.t.Fatalf("Listen ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	e.t.Fatalf("no XID of GPU %d arrives", index)
}

// next returns the next event that is not a beacon.
func (e *recorder) next() gpu.Event {
	e.t.Helper()
	for {
		select {
		case event := <-e.events:
			if event.XID != beacon {
				return event
			}
		case err := <-e.ended:
			e.t.Fatalf("Listen ended: %v", err)
		case <-time.After(harness.Patience):
			e.t.Fatal("no event arrives")
		}
	}
}

// end returns the error of WatchEvents.
func (e *recorder) end() error {
	e.t.Helper()
	select {
	case err := <-e.ended:
		return err
	case <-time.After(harness.Patience):
		e.t.Fatal("Listen does not end")
		return nil
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var withoutTime = cmpopts.IgnoreFields(gpu.Event{}, "At")

func TestWatchEvents(t *testing.T) {
	s, dir := open(t, "h100x2")
	gpus := gputest.Node(t, "h100x2").GPUs
	must(t, s.SetMode(t.Context(), gpus[1].Name(), gpu.ModeEnabled))
	first := carve(t, s, gpus[1].Name(), gpu.Placement{Profile: 19, Start: 2, Size: 1})
	second := carve(t, s, gpus[1].Name(), gpu.Placement{Profile: 9, Start: 4, Size: 4})
	e := listen(t, s, dir)

	inside := func(i gpu.Instance, ci int) fakegpu.Place { return fakegpu.Place{GPU: 1, Instance: i.GI, Compute: ci} }
	tests := []struct {
		what string
		at   fakegpu.Place
		xid  int
		want gpu.Placement
	}{
		{"a whole GPU", fakegpu.On(0), 48, gpu.Placement{}},
		{"a MIG device", inside(second, 0), 94, second.Placement},
		{"another MIG device", inside(first, 0), 13, first.Placement},
		{"a GPU instance", inside(first, fakegpu.Whole), 95, first.Placement},
		{"a whole GPU in MIG mode", fakegpu.On(1), 79, gpu.Placement{}},
		{"a MIG device that is gone", fakegpu.Place{GPU: 1, Instance: 12, Compute: 0}, 43, gpu.Placement{}},
	}
	for _, test := range tests {
		before := time.Now()
		must(t, fakegpu.XID(dir, test.at, test.xid))
		got := e.next()
		want := gpu.Event{GPU: gpus[test.at.GPU].Name(), Placement: test.want, XID: test.xid}
		if diff := cmp.Diff(want, got, withoutTime); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
		if got.At.Before(before) || time.Since(got.At) > harness.Patience {
			t.Errorf("%s: at %v", test.what, got.At)
		}
	}
	must(t, fakegpu.ECC(dir, 0, 0, 1)) // an event that is not an XID
	must(t, fakegpu.XID(dir, fakegpu.On(0), 31))
	if got := e.next(); got.XID != 31 {
		t.Errorf("got %+v, want XID 31", got)
	}
	e.cancel()
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Errorf("Listen ended with %v", err)
	}
}

// A burst arrives complete and in order, while other calls run.
func TestWatchEventsBurst(t *testing.T) {
	s, dir := open(t, "h100x2")
	e := listen(t, s, dir)
	const burst = 1000
	for i := range burst {
		must(t, fakegpu.XID(dir, fakegpu.On(i%2), 1000+i))
	}
	for i := range burst {
		if got := e.next(); got.XID != 1000+i {
			t.Fatalf("event %d is XID %d, want %d", i, got.XID, 1000+i)
		}
	}
	if _, err := s.Read(t.Context()); err != nil {
		t.Error(err)
	}
}

// A watch continues with the connection that replaces its own.
func TestWatchEventsReconnects(t *testing.T) {
	s, dir := open(t, "h100x2")
	e := listen(t, s, dir)
	limited, done := context.WithTimeout(t.Context(), harness.Patience) // the watch must not keep the connection
	defer done()
	for what, another := range map[string]func() error{
		"reopened": func() error { return s.Reopen(limited) },
		"apart":    func() error { return s.Disconnected(limited, func(context.Context) error { return nil }) },
	} {
		for range 3 {
			if err := another(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			e.received(1)
		}
	}
	e.cancel()
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Errorf("Listen ended with %v", err)
	}
}

// The end of the connection ends the watch, and a new one can start.
func TestWatchEventsUntilClosed(t *testing.T) {
	s, dir := open(t, "h100x2")
	tests := []struct {
		what  string
		end   func() error
		after func() error
	}{
		{what: "closed", end: func() error { s.Close(); return nil }, after: func() error { return s.Reopen(t.Context()) }},
		{what: "the driver goes", end: func() error { return fakegpu.RemoveDriver(dir) },
			after: func() error { return errors.Join(fakegpu.RestoreDriver(dir), s.Reopen(t.Context())) }},
	}
	for _, test := range tests {
		e := listen(t, s, dir)
		must(t, test.end())
		if err := e.end(); !errors.Is(err, gpu.ErrNoDriver) {
			t.Errorf("%s: Listen ended with %v", test.what, err)
		}
		if err := s.WatchEvents(t.Context(), nil); !errors.Is(err, gpu.ErrNoDriver) {
			t.Errorf("%s: WatchEvents returns %v", test.what, err)
		}
		must(t, test.after())
	}
	listen(t, s, dir)
}

// A lost GPU does not block the events of the others, and its events arrive again once it recovers.
func TestWatchEventsWithLostGPU(t *testing.T) {
	t.Run("lost during a wait", func(t *testing.T) {
		s, dir := open(t, "h100x2")
		e := listen(t, s, dir)
		e.received(1)
		must(t, fakegpu.RequireReset(dir, 1))
		must(t, fakegpu.Fail(dir, "nvmlEventSetWait_v2", uint32(nvml.ERROR_GPU_IS_LOST), 3))
		for failed := false; !failed; {
			e.received(0)
			state, err := fakegpu.Read(dir)
			must(t, err)
			failed = state.Faults[0].Count == 0
		}
		must(t, fakegpu.Find(dir, 1))
		e.received(1)
	})
	t.Run("lost at the start", func(t *testing.T) {
		s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2"})
		must(t, fakegpu.Lose(dir, 1))
		must(t, s.Reopen(t.Context()))
		e := listen(t, s, dir)
		must(t, fakegpu.Find(dir, 1))
		if _, err := s.Read(t.Context()); err != nil { // identifies the lost GPU
			t.Fatal(err)
		}
		e.received(1)
	})
	t.Run("none answers", func(t *testing.T) {
		s, dir := open(t, "h100x2")
		must(t, fakegpu.Lose(dir, 0))
		must(t, fakegpu.Lose(dir, 1))
		ended := make(chan error, 1)
		events := make(chan gpu.Event, 5000)
		go func() { ended <- s.WatchEvents(t.Context(), func(event gpu.Event) { events <- event }) }()
		must(t, fakegpu.Reset(dir))
		(&recorder{t: t, dir: dir, events: events, ended: ended}).received(0)
	})
}

func TestWatchEventsFails(t *testing.T) {
	s, dir := open(t, "h100x2")
	must(t, fakegpu.Fail(dir, "nvmlEventSetCreate", uint32(nvml.ERROR_UNKNOWN), 1))
	if err := s.WatchEvents(t.Context(), nil); err == nil || errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("no set: %v", err)
	}
	e := listen(t, s, dir)
	must(t, fakegpu.Fail(dir, "nvmlEventSetWait_v2", uint32(nvml.ERROR_UNKNOWN), 1))
	if err := e.end(); err == nil || errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("a wait that fails: %v", err)
	}
	listen(t, s, dir)
}

// A driver that lacks newer functions delivers XIDs too.
func TestWatchEventsOldDriver(t *testing.T) {
	olderDrivers(t, "h100x2", func(t *testing.T, s *Session, dir string) { listen(t, s, dir).received(1) })
}
