package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/testbed"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// watcher is kubelet's watcher of plugins: it connects to the sockets that appear in the folder of
// registrations and drops those that disappear.
type watcher struct {
	folder string
	mu     sync.Mutex
	// connected are the plugins by their sockets, in order of registration.
	connected []connected
	// without is the total time without a connected plugin since the first one connected.
	without time.Duration
}

type connected struct {
	socket string
	*harness.Kubelet
}

// watchPause is the interval at which the folder is read; kubelet receives its changes at once.
const watchPause = time.Millisecond

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	defer w.keep(nil)
	last := time.Now()
	for seen := false; ; {
		sockets, err := filepath.Glob(filepath.Join(w.folder, "*-reg.sock"))
		if err != nil {
			return err
		}
		w.keep(sockets)
		for _, socket := range sockets {
			w.connect(ctx, socket)
		}
		_, live := w.current()
		now := time.Now()
		if seen && !live {
			w.without += now.Sub(last)
		}
		seen, last = seen || live, now
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// keep drops the plugins whose sockets are gone.
func (w *watcher) keep(sockets []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connected = slices.DeleteFunc(w.connected, func(c connected) bool {
		gone := !slices.Contains(sockets, c.socket)
		if gone {
			// Calls in progress complete first, as with kubelet.
			time.AfterFunc(harness.CallLimit, c.Close)
		}
		return gone
	})
}

// connect registers the plugin of the socket, if it is new and answers.
func (w *watcher) connect(ctx context.Context, socket string) {
	w.mu.Lock()
	known := slices.ContainsFunc(w.connected, func(c connected) bool { return c.socket == socket })
	w.mu.Unlock()
	if known {
		return
	}
	if k, err := harness.Register(ctx, socket); err == nil {
		w.mu.Lock()
		w.connected = append(w.connected, connected{socket, k})
		w.mu.Unlock()
	}
}

// current is the plugin that kubelet calls: the last one registered.
func (w *watcher) current() (*harness.Kubelet, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.connected) == 0 {
		return nil, false
	}
	return w.connected[len(w.connected)-1].Kubelet, true
}

// upgraded is the effect of upgrades on kubelet.
type upgraded struct {
	// without is the time without a connected plugin, calls the number of Prepares and Unprepares, and
	// failed the number of those that failed.
	without       time.Duration
	calls, failed int64
}

// upgrade replaces the agent under load as its DaemonSet does, and the null plugin as DaemonSets do
// that end the old pod first.
func (b *bench) upgrade(ctx context.Context) error {
	mine, err := b.underLoad(ctx, ours, overlapping())
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	floor, err := b.underLoad(ctx, null, replacing())
	if err != nil {
		return fmt.Errorf("upgrade the %s: %w", peer, err)
	}
	const without = peer + " without overlap"
	b.Add(
		report.Figure(fmt.Sprintf("no plugin connected during %d upgrades", b.upgrades), mine.without.Seconds(), "s").AtMost(0).Peer(without, floor.without.Seconds()),
		report.Figure(fmt.Sprintf("calls that failed during %d upgrades", b.upgrades), float64(mine.failed), "calls").AtMost(0).Peer(without, float64(floor.failed)),
	)
	b.Note("upgrades: %d calls to the agent, %d to the %s", mine.calls, floor.calls, without)
	return nil
}

// strategy is how a DaemonSet replaces its pod.
type strategy struct {
	// uid returns the UID in the names of the i-th pod's sockets; empty when all have the same names.
	uid func(i int) string
	// next replaces a plugin by one of the same kind and returns the new one.
	next func(ctx context.Context, b *bench, h *harness.Host, which kind, old plugin, uid string) (plugin, error)
}

func overlapping() strategy {
	return strategy{uid: func(i int) string { return fmt.Sprintf("pod-%d", i) }, next: overlap}
}

func replacing() strategy {
	return strategy{uid: func(int) string { return "" }, next: replace}
}

// overlap starts the new one and ends the old when the new is ready, as maxSurge does.
func overlap(ctx context.Context, b *bench, h *harness.Host, which kind, old plugin, uid string) (plugin, error) {
	next, err := which(b, h, uid)
	if err != nil {
		return old, err
	}
	return next, errors.Join(b.Await(ctx, h, "the new agent to be ready", next.ready), terminate(h, old))
}

// terminate ends a plugin as kubelet ends a pod; an error contains the end of the plugin's log.
func terminate(h *harness.Host, p plugin) error {
	if err := p.Terminate(); err != nil {
		return fmt.Errorf("%w\n%s", err, testbed.Tail(h.Log()))
	}
	return nil
}

// replace ends the old one first, as maxUnavailable does.
func replace(_ context.Context, b *bench, h *harness.Host, which kind, old plugin, uid string) (plugin, error) {
	if err := terminate(h, old); err != nil {
		return old, err
	}
	return which(b, h, uid)
}

func (b *bench) underLoad(ctx context.Context, which kind, how strategy) (seen upgraded, err error) {
	h, err := b.Host(ctx, "")
	if err != nil {
		return upgraded{}, err
	}
	b.Doing("upgrading it under load, %d times", b.upgrades)
	w := &watcher{folder: h.Registry()}
	ctx, end := context.WithCancel(ctx)
	var watching errgroup.Group
	watching.Go(func() error { return w.run(ctx) })
	defer func() {
		end()
		err = errors.Join(err, watching.Wait())
		seen.without = w.without
	}()
	p, err := which(b, h, how.uid(0))
	if err != nil {
		return upgraded{}, err
	}
	defer func() { p.Kill() }()
	if err := b.Await(ctx, h, "kubelet's connection", w.live); err != nil {
		return upgraded{}, err
	}
	load, err := b.startLoad(ctx, h, w)
	if err != nil {
		return upgraded{}, err
	}
	for i := range b.upgrades {
		p, err = how.next(ctx, b, h, which, p, how.uid(i+1))
		if err == nil {
			err = b.Await(ctx, h, "calls to the new one", load.more())
		}
		if err != nil {
			break
		}
	}
	seen.calls, seen.failed = load.stop()
	return seen, err
}

// live returns an error while no plugin is connected.
func (w *watcher) live(context.Context) error {
	if _, ok := w.current(); !ok {
		return errors.New("no plugin is connected")
	}
	return nil
}

// load is a sequence of claims that are prepared and unprepared without a pause.
type load struct {
	calls, failed atomic.Int64
	ended         chan struct{}
	group         errgroup.Group
}

// startLoad starts with a whole GPU and a MIG device.
func (b *bench) startLoad(ctx context.Context, h *harness.Host, w *watcher) (*load, error) {
	l := &load{ended: make(chan struct{})}
	slice, err := h.Slice(1, smallest, 0)
	if err != nil {
		return nil, err
	}
	for name, device := range map[string]gpu.Device{"whole": h.Whole(0), "slice": slice} {
		claim, err := h.Claim(ctx, "load-"+name, []gpu.Device{device})
		if err != nil {
			return nil, err
		}
		l.group.Go(func() error { l.churn(ctx, w, claim); return nil })
	}
	return l, nil
}

func (l *load) churn(ctx context.Context, w *watcher, claim *drapb.Claim) {
	for {
		for _, call := range []func(*harness.Kubelet) error{
			func(k *harness.Kubelet) error { _, err := k.Prepare(ctx, claim); return err },
			func(k *harness.Kubelet) error { return k.Unprepare(ctx, claim) },
		} {
			l.call(w, call)
		}
		select {
		case <-l.ended:
			return
		case <-ctx.Done():
			return
		default:
		}
	}
}

// retryPause is the wait after a failed call; kubelet waits longer.
const retryPause = 100 * time.Millisecond

func (l *load) call(w *watcher, call func(*harness.Kubelet) error) {
	k, connected := w.current()
	l.calls.Add(1)
	if !connected || call(k) != nil {
		l.failed.Add(1)
		time.Sleep(retryPause)
	}
}

// succeeded is the number of calls that succeeded.
func (l *load) succeeded() int64 { return l.calls.Load() - l.failed.Load() }

// more returns an error until the load has made more calls that succeeded.
func (l *load) more() func(context.Context) error {
	before := l.succeeded()
	return func(context.Context) error {
		if now := l.succeeded(); now < before+10 {
			return fmt.Errorf("%d calls succeeded", now-before)
		}
		return nil
	}
}

// stop ends the load and returns its counts.
func (l *load) stop() (calls, failed int64) {
	close(l.ended)
	_ = l.group.Wait()
	return l.calls.Load(), l.failed.Load()
}
