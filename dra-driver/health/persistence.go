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

// storeState is the state of saving.
type storeState struct {
	// leading is whether this agent saves, after it has loaded what the previous leader saved.
	leading bool
	// saved is the content of the store; tried is the last value that was passed to it, at is when.
	saved, tried gpu.Health
	at           time.Time
	// writing is a write that has timed out and is still in progress.
	writing chan writeResult
}

// writeResult is the result of a write.
type writeResult struct {
	saved bool
	err   error
}

// errDiskTimeout is returned when a write did not end within saveTimeout.
var errDiskTimeout = errors.New("the disk does not respond")

// load merges the saved faults with those that this agent has found, and reports whether they could be read.
func (m *Monitor) load(ctx context.Context) bool {
	loaded, err := m.config.Store.LoadHealth()
	m.logError(ctx, "load faults", err)
	if err != nil {
		return false
	}
	m.health, m.stored.saved = m.health.Join(loaded), loaded
	m.clearFaults(ctx, "")
	return true
}

// takeLead reports whether this agent saves. When it begins to lead, it first loads what the previous leader saved; it does not overwrite a
// file that it cannot read.
func (m *Monitor) takeLead(ctx context.Context) bool {
	m.stored.leading = m.config.Leads() && (m.stored.leading || m.load(ctx))
	return m.stored.leading
}

// save saves the health if it changed: significant changes immediately and, after a failure, once per period; counts and times every
// saveCountsPeriod.
func (m *Monitor) save(ctx context.Context) {
	s, now := &m.stored, time.Now()
	urgent := differSignificantly(s.saved, m.health)
	switch {
	case urgent && differSignificantly(s.tried, m.health), now.Sub(s.at) >= m.config.Period && urgent:
	case now.Sub(s.at) >= saveCountsPeriod && !equalExceptCounts(s.saved.Faults, m.health.Faults):
	default:
		return
	}
	s.at = now
	leads := m.takeLead(ctx)
	s.tried = m.health
	if !leads {
		return
	}
	end := m.write(m.health)
	if end.saved {
		s.saved = m.health
	}
	m.logError(ctx, "save faults", end.err)
}

// write passes the health to the store and waits up to saveTimeout. While a write that timed out is in progress, it returns errDiskTimeout.
// If the store found that another agent leads, this agent must load what that one saved before it saves again.
func (m *Monitor) write(h gpu.Health) writeResult {
	s := &m.stored
	if s.writing != nil {
		select {
		case late := <-s.writing:
			s.writing = nil
			if late.leadLost() {
				s.leading = false
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
		s.leading = s.leading && !end.leadLost()
		return end
	case <-limit.C:
		s.writing = writing
		return writeResult{err: errDiskTimeout}
	}
}

// leadLost reports whether nothing was saved because another agent leads.
func (w writeResult) leadLost() bool { return !w.saved && w.err == nil }

// saveBeforeExit saves counts and times that are not saved yet.
func (m *Monitor) saveBeforeExit(ctx context.Context) {
	if reflect.DeepEqual(m.stored.saved, m.health) || !m.stored.leading || !m.config.Leads() {
		return
	}
	m.logError(ctx, "save faults", m.write(m.health).err)
}

// differSignificantly reports whether the two differ in more than counts and times.
func differSignificantly(a, b gpu.Health) bool {
	return a.Boot != b.Boot || !maps.Equal(a.Links, b.Links) || !maps.EqualFunc(a.Resets, b.Resets, time.Time.Equal) ||
		!equalSignificance(significantFaults(a.Faults), significantFaults(b.Faults))
}

// significance is the part of a fault whose changes are saved and reported immediately.
type significance struct {
	eventKey
	signal   gpu.Signal
	severity gpu.Severity
	remedy   gpu.Remedy
	inEffect bool
}

// significantFaults returns the significance of the faults that are worse than Harmless.
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

// equalExceptCounts reports whether the faults are equal, except for how often and when checks last found a condition.
func equalExceptCounts(a, b []gpu.Fault) bool {
	return slices.EqualFunc(a, b, func(f, g gpu.Fault) bool {
		if f.Signal != gpu.SignalXID && g.Signal != gpu.SignalXID {
			f.Last, f.Count = g.Last, g.Count
		}
		return reflect.DeepEqual(f, g)
	})
}
