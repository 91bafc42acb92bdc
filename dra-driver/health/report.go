package health

import (
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// reportState is what was reported.
type reportState struct {
	// reported are the last faults that were reported, at is when.
	reported []gpu.Fault
	at       time.Time
	// since is the time of the earliest observation that was processed after the last report.
	since time.Time
}

// observed records the time of an observation that is processed now.
func (r *reportState) observed(at time.Time) {
	if r.since.IsZero() || at.Before(r.since) {
		r.since = at
	}
}

// report passes the faults in effect to Config.Report if they changed.
func (m *Monitor) report() {
	r, now := &m.reporting, time.Now()
	since := r.since
	r.since = time.Time{}
	faults := m.health.InEffect()
	before, after := significantFaults(r.reported), significantFaults(faults)
	urgent := !equalSignificance(before, after)
	if !urgent && (now.Sub(r.at) < reportCountsPeriod || equalExceptCounts(r.reported, faults)) {
		return
	}
	r.reported, r.at = faults, now
	m.config.Report(faults)
	if m.config.Detected != nil && !since.IsZero() && worse(before, after) {
		m.config.Detected(time.Since(since))
	}
}

// worse reports whether a fault began or its severity rose.
func worse(before, after []significance) bool {
	previous := map[significance]gpu.Severity{}
	for _, g := range before {
		previous[g.key()] = g.severity
	}
	for _, g := range after {
		if g.severity > previous[g.key()] {
			return true
		}
	}
	return false
}

// key identifies the fault: it is the significance without what may change.
func (g significance) key() significance {
	g.severity, g.remedy, g.inEffect = 0, 0, false
	return g
}
