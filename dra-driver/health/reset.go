package health

import "time"

// resetNotice says that GPUs were reset.
type resetNotice struct {
	gpus []string
	at   time.Time
	// saved is closed when it is saved, or cannot be.
	saved chan struct{}
}

// WasReset takes in that the GPUs of these names were reset together, when, and answer again: what a reset ends is over as soon as a look does not find
// it. It returns when that is saved, so that it outlives the process. It may be called while Run runs, and waits for it to begin.
func (m *Monitor) WasReset(gpus []string, at time.Time) {
	r := resetNotice{gpus: gpus, at: at, saved: make(chan struct{})}
	select {
	case m.resets <- r:
	case <-m.ended:
		return
	}
	<-r.saved
}

// applyReset takes in that GPUs were reset. The looks that are going on began before: they may have found a GPU that did not answer for it.
func (m *Monitor) applyReset(r resetNotice) {
	m.health = m.health.Reset(r.gpus, r.at, m.config.Boot)
	for _, name := range r.gpus {
		delete(m.checked, name)
		delete(m.running, name)
	}
}
