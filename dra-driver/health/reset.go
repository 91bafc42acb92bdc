package health

import "time"

// reset says that GPUs were reset.
type reset struct {
	gpus []string
	at   time.Time
	// remembered is closed when it is saved, or cannot be.
	remembered chan struct{}
}

// WasReset takes in that the GPUs of these names were reset together, when, and answer again: what a reset ends is over as soon as a look does not find
// it. It returns when that is saved, so that it outlives the process. It may be called while Run runs, and waits for it to begin.
func (m *Monitor) WasReset(gpus []string, at time.Time) {
	r := reset{gpus: gpus, at: at, remembered: make(chan struct{})}
	select {
	case m.resets <- r:
	case <-m.ended:
		return
	}
	<-r.remembered
}

// reset takes in that GPUs were reset. The looks that are going on began before: they may have found a GPU that did not answer for it.
func (m *Monitor) reset(r reset) {
	m.health = m.health.Reset(r.gpus, r.at, m.config.Boot)
	for _, name := range r.gpus {
		delete(m.checked, name)
		delete(m.looking, name)
	}
}
