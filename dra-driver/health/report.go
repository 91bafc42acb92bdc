package health

import (
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// telling is how far the others know.
type telling struct {
	// told are the faults that they know, since a time.
	told []gpu.Fault
	at   time.Time
	// since is when the earliest of what was taken in since the last save and tell was noticed.
	since time.Time
}

// noticed says when something was noticed that is taken in now.
func (t *telling) noticed(at time.Time) {
	if t.since.IsZero() || at.Before(t.since) {
		t.since = at
	}
}

// tell tells the faults in effect if they changed.
func (m *Monitor) tell() {
	t, now := &m.telling, time.Now()
	since := t.since
	t.since = time.Time{}
	faults := m.health.InEffect()
	before, after := grave(t.told), grave(faults)
	urgent := !same(before, after)
	if !urgent && (now.Sub(t.at) < tellCounts || sameSketch(t.told, faults)) {
		return
	}
	t.told, t.at = faults, now
	m.config.Tell(faults)
	if m.config.Detected != nil && !since.IsZero() && worse(before, after) {
		m.config.Detected(time.Since(since))
	}
}

// worse reports whether a fault came or became worse.
func worse(before, after []gravity) bool {
	known := map[gravity]gpu.Severity{}
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
func (g gravity) key() gravity {
	g.severity, g.remedy, g.inEffect = 0, 0, false
	return g
}
