package health

import "time"

// resetNotice is a completed reset of GPUs.
type resetNotice struct {
	gpus []string
	at   time.Time
	// saved is closed when the reset was processed and saved, or saving has failed.
	saved chan struct{}
}

// WasReset records that the GPUs were reset together at the given time and respond again: faults that a reset clears end as soon as a check
// does not find them. It returns after that was saved. It must be called while Run runs, or before; then it waits for Run.
func (m *Monitor) WasReset(gpus []string, at time.Time) {
	r := resetNotice{gpus: gpus, at: at, saved: make(chan struct{})}
	select {
	case m.resets <- r:
	case <-m.ended:
		return
	}
	<-r.saved
}

// applyReset records the reset and discards the checks in progress: they began before, and may have failed because of the reset.
func (m *Monitor) applyReset(r resetNotice) {
	m.health = m.health.Reset(r.gpus, r.at, m.config.Boot)
	for _, name := range r.gpus {
		delete(m.checked, name)
		delete(m.running, name)
	}
}
