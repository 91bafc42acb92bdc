package health

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// watchEvents listens until ctx ends. What ends after a while had begun, and begins again at once: nobody hears what is told between the two. What does not
// begin waits until the inventory has something new, as when it has opened the driver again, and in any case not longer than until the next look.
func (m *Monitor) watchEvents(ctx context.Context) {
	last := ""
	for {
		_, _, outdated := m.config.Inventory.Watch()
		began := time.Now()
		err := m.config.Hardware.WatchEvents(ctx, m.events.add)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, gpu.ErrNoDriver) && err.Error() != last {
			klog.FromContext(ctx).Error(err, "No XIDs are heard, trying again")
			last = err.Error()
		}
		if time.Since(began) >= m.config.Period {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-outdated:
		case <-time.After(m.config.Period):
		}
	}
}

// eventQueue collects events for the monitor. Events of one GPU, placement and number are one with a count, so that as many as may come take
// no more room than there are kinds of them, none is lost, and who tells them never waits.
type eventQueue struct {
	// ready has one element while there are events.
	ready chan struct{}

	mu     sync.Mutex
	events map[eventKey]*queuedEvent
	order  []*queuedEvent
}

// eventKey is what events are counted together by.
type eventKey struct {
	gpu       string
	placement gpu.Placement
	xid       int
}

// queuedEvent are events of one kind; first is when the first of them was.
type queuedEvent struct {
	gpu.Event
	first time.Time
}

func newEventQueue() *eventQueue {
	return &eventQueue{ready: make(chan struct{}, 1), events: map[eventKey]*queuedEvent{}}
}

// add takes an event in.
func (h *eventQueue) add(e gpu.Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.Count = max(e.Count, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	of := eventKey{e.GPU, e.Placement, e.XID}
	if known, has := h.events[of]; has {
		known.Count += e.Count
		known.At = e.At
		return
	}
	h.events[of] = &queuedEvent{Event: e, first: e.At}
	h.order = append(h.order, h.events[of])
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// take returns what was heard since it was last called, in the order in which it came.
func (h *eventQueue) take() []*queuedEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	order := h.order
	h.order = nil
	clear(h.events)
	return order
}

// processEvents takes in what was heard and reports whether any of it matters: whether it comes, or becomes worse.
func (m *Monitor) processEvents() bool {
	node, _, _ := m.config.Inventory.Watch()
	before := significantFaults(m.health.Faults)
	for _, e := range m.events.take() {
		if g, err := node.Find(e.GPU); err == nil && e.UUID == "" {
			e.UUID = g.UUID
		}
		m.health = m.health.Note(m.config.Rules, e.Event, m.config.Boot)
		m.reporting.noticed(e.first)
		if m.config.Received != nil {
			m.config.Received(e.Event)
		}
	}
	return !equalSignificance(before, significantFaults(m.health.Faults))
}
