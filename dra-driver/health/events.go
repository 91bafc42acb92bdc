package health

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// watchEvents receives events until ctx ends. A watch that ended after a period or more is restarted immediately, because events in between are
// lost. One that could not start is restarted when the inventory has a new snapshot, as after the driver was opened, at the latest after a
// period.
func (m *Monitor) watchEvents(ctx context.Context) {
	logged := ""
	for {
		_, _, outdated := m.config.Inventory.Watch()
		began := time.Now()
		err := m.config.Hardware.WatchEvents(ctx, m.events.add)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, gpu.ErrNoDriver) && err.Error() != logged {
			klog.FromContext(ctx).Error(err, "XIDs are not received, retrying")
			logged = err.Error()
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

// eventQueue passes events to Run. Events with the same key are merged into one with a count: the queue is bounded by the number of keys, no
// event is lost, and add never blocks.
type eventQueue struct {
	// ready contains a value while there are events.
	ready chan struct{}

	mu     sync.Mutex
	events map[eventKey]*queuedEvent
	order  []*queuedEvent
}

// eventKey is the key by which events are merged.
type eventKey struct {
	gpu       string
	placement gpu.Placement
	xid       int
}

// queuedEvent is a merged event; first is the time of the first one.
type queuedEvent struct {
	gpu.Event
	first time.Time
}

func newEventQueue() *eventQueue {
	return &eventQueue{ready: make(chan struct{}, 1), events: map[eventKey]*queuedEvent{}}
}

// add adds an event.
func (q *eventQueue) add(e gpu.Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.Count = max(e.Count, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	key := eventKey{e.GPU, e.Placement, e.XID}
	if queued, found := q.events[key]; found {
		queued.Count += e.Count
		queued.At = e.At
		return
	}
	q.events[key] = &queuedEvent{Event: e, first: e.At}
	q.order = append(q.order, q.events[key])
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take removes and returns the events in the order of their arrival.
func (q *eventQueue) take() []*queuedEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	order := q.order
	q.order = nil
	clear(q.events)
	return order
}

// processEvents judges the queued events and reports whether a fault changed significantly.
func (m *Monitor) processEvents() bool {
	node, _, _ := m.config.Inventory.Watch()
	before := significantFaults(m.health.Faults)
	for _, e := range m.events.take() {
		if g, err := node.Find(e.GPU); err == nil && e.UUID == "" {
			e.UUID = g.UUID
		}
		m.health = m.health.Note(m.config.Rules, e.Event, m.config.Boot)
		m.reporting.observed(e.first)
		if m.config.Received != nil {
			m.config.Received(e.Event)
		}
	}
	return !equalSignificance(before, significantFaults(m.health.Faults))
}
