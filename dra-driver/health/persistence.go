package health

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// memory is what is known of what the store has.
type memory struct {
	// leading is whether this agent took over what the one before it had saved.
	leading bool
	// kept is what the store has; tried is what was last given to it, at a time.
	kept, tried gpu.Health
	at          time.Time
	// writing is an earlier write that did not end in time.
	writing chan written
}

// written is how a write ended.
type written struct {
	saved bool
	err   error
}

// errSlow says that the disk was not waited for.
var errSlow = errors.New("the disk does not answer")

// load takes in what was saved. What this agent knows already stays; it may have heard of more.
func (m *Monitor) load(ctx context.Context) bool {
	loaded, err := m.config.Store.LoadHealth()
	m.trouble(ctx, "load what is remembered", err)
	if err != nil {
		return false
	}
	m.health, m.memory.kept = m.health.Join(loaded), loaded
	m.settle(ctx, "")
	return true
}

// leads reports whether this agent is to save. It takes over from the one before it first, and does not write over what it cannot read.
func (m *Monitor) leads(ctx context.Context) bool {
	m.memory.leading = m.config.Leads() && (m.memory.leading || m.load(ctx))
	return m.memory.leading
}

// save saves what is remembered before it is told. When that fails it is told nevertheless, because to keep claims off a sick GPU is worth more,
// and tried again.
func (m *Monitor) save(ctx context.Context) {
	k, now := &m.memory, time.Now()
	urgent := differs(k.kept, m.health)
	switch {
	case urgent && differs(k.tried, m.health), now.Sub(k.at) >= m.config.Period && urgent:
	case now.Sub(k.at) >= saveCounts && !sameSketch(k.kept.Faults, m.health.Faults):
	default:
		return
	}
	k.at = now
	leads := m.leads(ctx)
	k.tried = m.health
	if !leads {
		return
	}
	end := m.write(m.health)
	if end.saved {
		k.kept = m.health
	}
	m.trouble(ctx, "save what is remembered", end.err)
}

// write gives what is remembered to the store and waits for it, but not for ever. One that found another agent in the lead ends this one's: what
// that one saved is taken in before anything is saved again.
func (m *Monitor) write(h gpu.Health) written {
	k := &m.memory
	if k.writing != nil {
		select {
		case late := <-k.writing:
			k.writing = nil
			if late.overtaken() {
				k.leading = false
				return late
			}
		default:
			return written{err: errSlow}
		}
	}
	writing := make(chan written, 1)
	go func() {
		saved, err := m.config.Store.SaveHealth(h, m.config.Leads)
		writing <- written{saved, err}
	}()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case end := <-writing:
		k.leading = k.leading && !end.overtaken()
		return end
	case <-limit.C:
		k.writing = writing
		return written{err: errSlow}
	}
}

// overtaken reports whether another agent led.
func (w written) overtaken() bool { return !w.saved && w.err == nil }

// leave saves the counts before the process ends.
func (m *Monitor) leave(ctx context.Context) {
	if reflect.DeepEqual(m.memory.kept, m.health) || !m.memory.leading || !m.config.Leads() {
		return
	}
	m.trouble(ctx, "save what is remembered", m.write(m.health).err)
}

// differs reports whether two memories differ in more than counts.
func differs(a, b gpu.Health) bool {
	return a.Boot != b.Boot || !maps.Equal(a.Links, b.Links) || !maps.EqualFunc(a.Resets, b.Resets, time.Time.Equal) ||
		!same(grave(a.Faults), grave(b.Faults))
}

// gravity is what makes a change of a fault one that must not be forgotten.
type gravity struct {
	kind
	signal   gpu.Signal
	severity gpu.Severity
	remedy   gpu.Remedy
	inEffect bool
}

// grave returns the gravities of the faults that are more than harmless.
func grave(faults []gpu.Fault) []gravity {
	var found []gravity
	for _, f := range faults {
		if f.Severity > gpu.Harmless {
			found = append(found, gravity{kind{f.GPU, f.Placement, f.XID}, f.Signal, f.Severity, f.Remedy, f.InEffect()})
		}
	}
	return found
}

func same(a, b []gravity) bool { return slices.Equal(a, b) }

// sameSketch reports whether two lists of faults say the same, but for how often a look found a condition and when it was the last.
func sameSketch(a, b []gpu.Fault) bool {
	return slices.EqualFunc(a, b, func(f, g gpu.Fault) bool {
		if f.Signal != gpu.SignalXID && g.Signal != gpu.SignalXID {
			f.Last, f.Count = g.Last, g.Count
		}
		return reflect.DeepEqual(f, g)
	})
}
