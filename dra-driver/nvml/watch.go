package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

const (
	// waitDuration is how long one wait for an event holds the connection, and so the most that Reopen, Close and Apart wait for it.
	waitDuration = 250 * time.Millisecond
	// registerPeriod is how often GPUs that could not be registered are tried again.
	registerPeriod = time.Second
	// maxEventsPerWait is how many events are taken while the connection is held once.
	maxEventsPerWait = 64
)

// WatchEvents tells every XID of every GPU, in order, from now on until ctx ends or the connection does, and returns why. When Reopen or Apart has put
// another connection in its place, it goes on with that at once. The error wraps gpu.ErrNoDriver when there is none, after Close or because the
// driver went: then one listens anew. After any other error, too; it says that the driver tells no events now.
//
// A GPU that cannot be registered, such as a lost one, is tried again every second while the others are listened to. An event of a GPU
// instance is told with its placement; when the instance is gone by then, of the whole GPU, which is the safe side. What happens while
// nobody listens, as during Apart, is not told: Check shows what remains of it. tell is called while the connection is not held, and may
// call the session.
func (s *Session) WatchEvents(ctx context.Context, tell func(gpu.Event)) error {
	l := &eventWatch{session: s}
	if err := l.withConnection(ctx, func() error { return l.start(ctx) }); err != nil {
		return fmt.Errorf("listen to the GPUs: %w", err)
	}
	defer l.end(context.WithoutCancel(ctx))
	for {
		events, err := l.next(ctx)
		for _, e := range events {
			tell(e)
		}
		if errors.Is(err, gpu.ErrNoDriver) && l.reconnect(ctx) {
			continue
		}
		if err != nil {
			return fmt.Errorf("listen to the GPUs: %w", err)
		}
		if l.pause {
			sleep(ctx, waitDuration)
		}
	}
}

// eventWatch is one event set of one connection.
type eventWatch struct {
	session *Session
	// node is the connection that it began with.
	node *node
	set  nvml.EventSet
	// missing are the GPUs that the set does not have; tried is when they were last asked.
	missing []*device
	tried   time.Time
	// pause is set when the driver did not wait: there is nothing to wait for, or it refused to.
	pause bool
}

// withConnection calls f while the connection stays the one that the listener began with.
func (l *eventWatch) withConnection(ctx context.Context, f func() error) error {
	if err := l.session.useConnection(ctx); err != nil {
		return err
	}
	defer l.session.mu.RUnlock()
	if l.node == nil {
		l.node = l.session.node
	}
	if l.node == nil || l.node != l.session.node {
		return gpu.ErrNoDriver
	}
	return f()
}

// reconnect begins with the connection that took the place of the listener's, and reports whether there is one.
func (l *eventWatch) reconnect(ctx context.Context) bool {
	next := &eventWatch{session: l.session}
	err := next.withConnection(ctx, func() error {
		if next.node == l.node {
			return gpu.ErrNoDriver
		}
		return next.start(ctx)
	})
	if err == nil {
		*l = *next
	}
	return err == nil
}

// start makes a set, in place of the one that there is, and registers every GPU that answers.
func (l *eventWatch) start(ctx context.Context) error {
	set, code := l.node.library.EventSetCreate()
	if err := newCallError("nvmlEventSetCreate", code); err != nil {
		return err
	}
	l.node.sets.add(set)
	l.node.sets.free(l.set)
	l.set, l.missing = set, l.node.devices
	return l.register(ctx)
}

// end gives the set back. The end of the connection has done that already.
func (l *eventWatch) end(ctx context.Context) {
	if l.session.useConnection(ctx) != nil {
		return
	}
	defer l.session.mu.RUnlock()
	if l.node == l.session.node {
		l.node.sets.free(l.set)
	}
}

// register adds the missing GPUs to the set. Only a missing driver is an error.
func (l *eventWatch) register(ctx context.Context) error {
	var missing []*device
	for _, d := range l.missing {
		err := d.register(l.set)
		if errors.Is(err, gpu.ErrNoDriver) {
			return err
		}
		if err != nil {
			klog.FromContext(ctx).V(4).Info("GPU cannot be registered for events, retrying", "index", d.index, "err", err)
			missing = append(missing, d)
		}
	}
	l.missing, l.tried = missing, time.Now()
	return nil
}

// register adds the GPU to the set once it has shown that it answers: a lost one could end every wait.
func (d *device) register(set nvml.EventSet) error {
	known := d.info.Load()
	if known == nil {
		return gpu.ErrLost
	}
	var a calls
	queryOptional(&a, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) { return known.handle.GetTemperature(nvml.TEMPERATURE_GPU) })
	if a.err != nil {
		return a.err
	}
	return newCallError("nvmlDeviceRegisterEvents", known.handle.RegisterEvents(nvml.EventTypeXidCriticalError, set))
}

// next waits for events and returns those that are there. They count also when it fails.
func (l *eventWatch) next(ctx context.Context) (events []gpu.Event, err error) {
	err = l.withConnection(ctx, func() error {
		if len(l.missing) > 0 && time.Since(l.tried) >= registerPeriod {
			if err := l.register(ctx); err != nil {
				return err
			}
		}
		events, err = l.take(ctx)
		return err
	})
	return events, err
}

func (l *eventWatch) take(ctx context.Context) ([]gpu.Event, error) {
	if l.pause = len(l.missing) == len(l.node.devices); l.pause {
		return nil, nil
	}
	var events []gpu.Event
	for wait := waitDuration; len(events) < maxEventsPerWait; wait = 0 {
		data, code := l.set.Wait(uint32(wait.Milliseconds()))
		err := newCallError("nvmlEventSetWait", code)
		switch {
		case failedWith(err, nvml.ERROR_TIMEOUT):
			return events, nil
		case errors.Is(err, gpu.ErrLost):
			l.pause = true
			events = append(events, l.drain(ctx)...)
			return events, l.start(ctx) // the set of the others
		case err != nil:
			return events, err
		}
		if e, is := l.node.event(ctx, data); is {
			events = append(events, e)
		}
	}
	return events, nil
}

// drain takes what the set still has, which the driver gave it before it failed.
func (l *eventWatch) drain(ctx context.Context) []gpu.Event {
	var events []gpu.Event
	for range maxEventsPerWait {
		data, code := l.set.Wait(0)
		if code == nvml.ERROR_GPU_IS_LOST {
			continue // it may come before the events of the others
		}
		if code != nvml.SUCCESS {
			break
		}
		if e, is := l.node.event(ctx, data); is {
			events = append(events, e)
		}
	}
	return events
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
