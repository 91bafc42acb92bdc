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
	// waitDuration is how long one wait for an event holds the connection, and so how long it delays Reopen, Close and
	// Disconnected; each wait wakes the process.
	waitDuration = time.Second
	// registerPeriod is the interval at which the registration of GPUs that could not be registered is retried.
	registerPeriod = time.Second
	// maxEventsPerWait is the maximum number of events that are taken while the connection is held once.
	maxEventsPerWait = 64
)

// WatchEvents calls tell for every XID of every GPU, in order, from now on until ctx or the connection ends, and returns
// the reason. After Reopen or Disconnected has replaced the connection, it continues with the new one. The error wraps
// gpu.ErrNoDriver if there is no connection, after Close or because the driver was removed. After any error the caller
// calls WatchEvents again; an error without gpu.ErrNoDriver means that the driver delivers no events at present.
//
// The registration of a GPU that fails, such as that of a lost one, is retried every second while events of the others
// are delivered. An event of a GPU instance has its placement; if the instance no longer exists, the event is one of the
// whole GPU, which is the safe interpretation. Events without a watch, as during Disconnected, are lost; Check reports
// the conditions that remain. tell is called while the connection is not held and may call the session.
func (s *Session) WatchEvents(ctx context.Context, report func(gpu.Event)) error {
	l := &eventWatch{session: s}
	if err := l.withConnection(ctx, func() error { return l.start(ctx) }); err != nil {
		return fmt.Errorf("register for GPU events: %w", err)
	}
	defer l.end(context.WithoutCancel(ctx))
	for {
		events, err := l.next(ctx)
		for _, e := range events {
			report(e)
		}
		if errors.Is(err, gpu.ErrNoDriver) && l.reconnect(ctx) {
			continue
		}
		if err != nil {
			return fmt.Errorf("register for GPU events: %w", err)
		}
		if l.pause {
			sleep(ctx, waitDuration)
		}
	}
}

// eventWatch is one event set of one connection.
type eventWatch struct {
	session *Session
	// node is the connection that the watch started with.
	node *node
	set  nvml.EventSet
	// missing are the GPUs that are not registered; tried is the time of the last attempt.
	missing []*device
	tried   time.Time
	// pause is set when the driver did not wait: no GPU is registered, or the wait failed at once.
	pause bool
}

// withConnection calls f if the connection is still the one that the watch started with, and keeps it from changing
// meanwhile. Otherwise it returns gpu.ErrNoDriver.
func (l *eventWatch) withConnection(ctx context.Context, f func() error) error {
	if err := l.session.connection.use(ctx); err != nil {
		return err
	}
	defer l.session.connection.leave()
	if l.node == nil {
		l.node = l.session.node
	}
	if l.node == nil || l.node != l.session.node {
		return gpu.ErrNoDriver
	}
	return f()
}

// reconnect restarts the watch on the connection that replaced its own, and reports whether there is one.
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

// start creates an event set, which replaces the present one, and registers every GPU that responds.
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

// end frees the event set, unless the end of the connection has already done so.
func (l *eventWatch) end(ctx context.Context) {
	if l.session.connection.use(ctx) != nil {
		return
	}
	defer l.session.connection.leave()
	if l.node == l.session.node {
		l.node.sets.free(l.set)
	}
}

// register adds the missing GPUs to the set. Only a missing driver is an error; other failures are retried.
func (l *eventWatch) register(ctx context.Context) error {
	if err := l.session.modes.use(ctx); err != nil {
		return err
	}
	defer l.session.modes.leave()
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

// register adds the GPU to the set if it responds to a query: a lost GPU in the set could end every wait.
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

// next waits for events and returns them. Events are valid even if err is not nil.
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
			return events, l.start(ctx) // the set of the remaining GPUs
		case err != nil:
			return events, err
		}
		if e, is := l.node.event(ctx, data); is {
			events = append(events, e)
		}
	}
	return events, nil
}

// drain returns the events that the set still has, which the driver queued before the failure.
func (l *eventWatch) drain(ctx context.Context) []gpu.Event {
	var events []gpu.Event
	for range maxEventsPerWait {
		data, code := l.set.Wait(0)
		if code == nvml.ERROR_GPU_IS_LOST {
			continue // may precede the events of the others
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

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
