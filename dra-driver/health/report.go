package health

import (
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// reportState is how far the others know.
type reportState struct {
	// reported are the faults that they know, since a time.
	reported []gpu.Fault
	at       time.Time
	// since is when the earliest of what was taken in since the last save and tell was noticed.
	since time.Time
}

// noticed says when something was noticed that is taken in now.
func (t *reportState) noticed(at time.Time) {
	if t.since.IsZero() || at.Before(t.since) {
		t.since = at
	}
}

// report tells the faults in effect if they changed.
func (m *Monitor) report() {
	t, now := &m.reporting, time.Now()
	since := t.since
	t.since = time.Time{}
	faults := m.health.InEffect()
	before, after := significantFaults(t.reported), significantFaults(faults)
	urgent := !equalSignificance(before, after)
	if !urgent && (now.Sub(t.at) < reportCountsPeriod || equalExceptCounts(t.reported, faults)) {
		return
	}
	t.reported, t.at = faults, now
	m.config.Report(faults)
	if m.config.Detected != nil && !since.IsZero() && worse(before, after) {
		m.config.Detected(time.Since(since))
	}
}

// worse reports whether a fault came or became worse.
func worse(before, after []significance) bool {
	known := map[significance]gpu.Severity{}
	for _, g := range before {
		known[g.key()] = g.severity
	}
	for _, g := range after {
		if g.severity > known[g.key()] {
			return true
		}
	}
	return false
}

// key is the gravity without what may change.
func (g significance) key() significance {
	g.severity, g.remedy, g.inEffect = 0, 0, false
	return g
}
