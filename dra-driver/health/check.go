package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// check is one look at a GPU.
type check struct {
	gpu   string
	began time.Time
	// rounds is how many rounds of looks found it still going on.
	rounds int
	// The rest is set when it is over.
	checkup gpu.Checkup
	err     error
}

// startChecks begins a look at every GPU that is not being looked at. They go on beside each other, so that one that hangs holds up no other; such a
// one counts as lost. The time of a look ends a period before that: one that only waited for the connection is over by then, and says so.
func (m *Monitor) startChecks(ctx context.Context) {
	now := time.Now()
	node, known, _ := m.config.Inventory.Watch()
	m.removeMissingGPUs(ctx, node, known)
	if m.silentRounds++; len(node.GPUs) == 0 {
		m.silentRounds = 0
	}
	for _, g := range node.GPUs {
		name := g.Name()
		l, going := m.running[name]
		if going {
			// Rounds are counted: a machine that stood still for a while had none, and its driver is not to blame. One more than fit into the
			// time lets a look that ends with its time be heard first.
			if l.rounds++; l.rounds > int(checkTimeout/m.config.Period)+1 {
				m.reporting.noticed(l.began)
				m.setLost(now, name, fmt.Sprintf("the driver does not answer a question about it since %s", l.began.UTC().Format(time.DateTime)))
				m.clearFaults(ctx, name)
			}
			continue
		}
		l = &check{gpu: name, began: now}
		m.running[name] = l
		go m.runCheck(ctx, l)
	}
}

// runCheck looks and hands over what it sees.
func (m *Monitor) runCheck(ctx context.Context, l *check) {
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l.checkup, l.err = m.config.Hardware.Check(limited, l.gpu)
	if errors.Is(l.err, gpu.ErrNoDriver) {
		// One whose connection was opened anew meanwhile says so, too.
		l.checkup, l.err = m.config.Hardware.Check(limited, l.gpu)
	}
	select {
	case <-ctx.Done():
	case m.results <- l:
	}
}

// handleResult takes in what a look saw, unless it tells of a time that is over, before a reset or long ago.
func (m *Monitor) handleResult(ctx context.Context, l *check) {
	if m.running[l.gpu] != l {
		return
	}
	delete(m.running, l.gpu)
	if errors.Is(l.err, context.DeadlineExceeded) {
		m.handleTimeout(ctx, l)
		return
	}
	if time.Since(l.began) > checkTimeout+m.config.Period {
		return
	}
	m.silentRounds = 0
	delete(m.timeouts, l.gpu)
	var trouble error
	switch {
	case l.err == nil:
		c := l.checkup
		// What comes after the look began is not known by it.
		c.GPU, c.At = l.gpu, l.began
		c.Conditions = append([]gpu.Condition{{Signal: gpu.SignalLost}, {Signal: gpu.SignalDriver}}, c.Conditions...)
		m.checked[l.gpu] = c
		m.reporting.noticed(l.began)
		m.health = m.health.Check(m.config.Rules, c, m.config.Boot)
	case errors.Is(l.err, gpu.ErrNoDriver):
		m.setConditions(l.began, l.gpu, gpu.Condition{Signal: gpu.SignalDriver, Present: true, Detail: l.err.Error()})
	case errors.Is(l.err, gpu.ErrLost):
		m.setLost(l.began, l.gpu, l.err.Error())
	default:
		trouble = l.err
	}
	m.logError(ctx, "look at "+l.gpu, trouble)
	m.clearFaults(ctx, l.gpu)
}

// handleTimeout takes in that a look ended with its time, which alone says nothing: the driver is being opened, or another GPU is reset, and nobody can be
// asked. While others can, it is the GPU that lets the driver take so long over it; when nobody can for very long, it is the driver.
func (m *Monitor) handleTimeout(ctx context.Context, l *check) {
	heard := false
	for name, c := range m.checked {
		heard = heard || name != l.gpu && c.At.After(l.began)
	}
	if m.timeouts[l.gpu]++; !heard {
		m.timeouts[l.gpu] = 0
	}
	switch now := time.Now(); {
	case m.timeouts[l.gpu] >= maxTimeouts:
		m.setLost(now, l.gpu, fmt.Sprintf("the driver takes longer than %v over each look at it", checkTimeout))
	case m.silentRounds >= int(silenceTimeout/m.config.Period):
		m.setConditions(now, l.gpu, gpu.Condition{Signal: gpu.SignalDriver, Present: true, Detail: fmt.Sprintf("no GPU can be asked anything for %v", silenceTimeout)})
	default:
		return
	}
	m.clearFaults(ctx, l.gpu)
}

// setLost takes in that a GPU does not answer. The driver does: it is who says so.
func (m *Monitor) setLost(at time.Time, gpuName, detail string) {
	m.setConditions(at, gpuName, gpu.Condition{Signal: gpu.SignalLost, Present: true, Detail: detail}, gpu.Condition{Signal: gpu.SignalDriver})
}

// setConditions takes in why a GPU could not be looked at.
func (m *Monitor) setConditions(at time.Time, gpuName string, conditions ...gpu.Condition) {
	delete(m.checked, gpuName)
	m.reporting.noticed(at)
	m.health = m.health.Check(m.config.Rules, gpu.Checkup{GPU: gpuName, Conditions: conditions, At: at}, m.config.Boot)
}
