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

// storeState is what is known of what the store has.
type storeState struct {
	// leading is whether this agent took over what the one before it had saved.
	leading bool
	// saved is what the store has; tried is what was last given to it, at a time.
	saved, tried gpu.Health
	at           time.Time
	// writing is an earlier write that did not end in time.
	writing chan writeResult
}

// writeResult is how a write ended.
type writeResult struct {
	saved bool
	err   error
}

// errDiskTimeout says that the disk was not waited for.
var errDiskTimeout = errors.New("the disk does not answer")

// load takes in what was saved. What this agent knows already stays; it may have heard of more.
func (m *Monitor) load(ctx context.Context) bool {
	loaded, err := m.config.Store.LoadHealth()
	m.logError(ctx, "load what is remembered", err)
	if err != nil {
		return false
	}
	m.health, m.stored.saved = m.health.Join(loaded), loaded
	m.clearFaults(ctx, "")
	return true
}

// takeLead reports whether this agent is to save. It takes over from the one before it first, and does not write over what it cannot read.
func (m *Monitor) takeLead(ctx context.Context) bool {
	m.stored.leading = m.config.Leads() && (m.stored.leading || m.load(ctx))
	return m.stored.leading
}

// save saves what is remembered before it is told. When that fails it is told nevertheless, because to keep claims off a sick GPU is worth more,
// and tried again.
func (m *Monitor) save(ctx context.Context) {
	k, now := &m.stored, time.Now()
	urgent := differSignificantly(k.saved, m.health)
	switch {
	case urgent && differSignificantly(k.tried, m.health), now.Sub(k.at) >= m.config.Period && urgent:
	case now.Sub(k.at) >= saveCountsPeriod && !equalExceptCounts(k.saved.Faults, m.health.Faults):
	default:
		return
	}
	k.at = now
	leads := m.takeLead(ctx)
	k.tried = m.health
	if !leads {
		return
	}
	end := m.write(m.health)
	if end.saved {
		k.saved = m.health
	}
	m.logError(ctx, "save what is remembered", end.err)
}

// write gives what is remembered to the store and waits for it, but not for ever. One that found another agent in the lead ends this one's: what
// that one saved is taken in before anything is saved again.
func (m *Monitor) write(h gpu.Health) writeResult {
	k := &m.stored
	if k.writing != nil {
		select {
		case late := <-k.writing:
			k.writing = nil
			if late.overtaken() {
				k.leading = false
				return late
			}
		default:
			return writeResult{err: errDiskTimeout}
		}
	}
	writing := make(chan writeResult, 1)
	go func() {
		saved, err := m.config.Store.SaveHealth(h, m.config.Leads)
		writing <- writeResult{saved, err}
	}()
	limit := time.NewTimer(saveTimeout)
	defer limit.Stop()
	select {
	case end := <-writing:
		k.leading = k.leading && !end.overtaken()
		return end
	case <-limit.C:
		k.writing = writing
		return writeResult{err: errDiskTimeout}
	}
}

// overtaken reports whether another agent led.
func (w writeResult) overtaken() bool { return !w.saved && w.err == nil }

// saveBeforeExit saves the counts before the process ends.
func (m *Monitor) saveBeforeExit(ctx context.Context) {
	if reflect.DeepEqual(m.stored.saved, m.health) || !m.stored.leading || !m.config.Leads() {
		return
	}
	m.logError(ctx, "save what is remembered", m.write(m.health).err)
}

// differSignificantly reports whether two memories differ in more than counts.
func differSignificantly(a, b gpu.Health) bool {
	return a.Boot != b.Boot || !maps.Equal(a.Links, b.Links) || !maps.EqualFunc(a.Resets, b.Resets, time.Time.Equal) ||
		!equalSignificance(significantFaults(a.Faults), significantFaults(b.Faults))
}

// significance is what makes a change of a fault one that must not be forgotten.
type significance struct {
	eventKey
	signal   gpu.Signal
	severity gpu.Severity
	remedy   gpu.Remedy
	inEffect bool
}

// significantFaults returns the gravities of the faults that are more than harmless.
func significantFaults(faults []gpu.Fault) []significance {
	var found []significance
	for _, f := range faults {
		if f.Severity > gpu.Harmless {
			found = append(found, significance{eventKey{f.GPU, f.Placement, f.XID}, f.Signal, f.Severity, f.Remedy, f.InEffect()})
		}
	}
	return found
}

func equalSignificance(a, b []significance) bool { return slices.Equal(a, b) }

// equalExceptCounts reports whether two lists of faults say the same, but for how often a look found a condition and when it was the last.
func equalExceptCounts(a, b []gpu.Fault) bool {
	return slices.EqualFunc(a, b, func(f, g gpu.Fault) bool {
		if f.Signal != gpu.SignalXID && g.Signal != gpu.SignalXID {
			f.Last, f.Count = g.Last, g.Count
		}
		return reflect.DeepEqual(f, g)
	})
}
