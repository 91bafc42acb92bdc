package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// look is one look at a GPU.
type look struct {
	gpu   string
	began time.Time
	// rounds is how many rounds of looks found it still going on.
	rounds int
	// The rest is set when it is over.
	checkup gpu.Checkup
	err     error
}

// look begins a look at every GPU that is not being looked at. They go on beside each other, so that one that hangs holds up no other; such a
// one counts as lost. The time of a look ends a period before that: one that only waited for the connection is over by then, and says so.
func (m *Monitor) look(ctx context.Context) {
	now := time.Now()
	node, known, _ := m.config.Inventory.Watch()
	m.forget(ctx, node, known)
	if m.silence++; len(node.GPUs) == 0 {
		m.silence = 0
	}
	for _, g := range node.GPUs {
		name := g.Name()
		l, going := m.looking[name]
		if going {
			// Rounds are counted: a machine that stood still for a while had none, and its driver is not to blame. One more than fit into the
			// time lets a look that ends with its time be heard first.
			if l.rounds++; l.rounds > int(hang/m.config.Period)+1 {
				m.telling.noticed(l.began)
				m.lost(now, name, fmt.Sprintf("the driver does not answer a question about it since %s", l.began.UTC().Format(time.DateTime)))
				m.settle(ctx, name)
			}
			continue
		}
		l = &look{gpu: name, began: now}
		m.looking[name] = l
		go m.check(ctx, l)
	}
}

// check looks and hands over what it sees.
func (m *Monitor) check(ctx context.Context, l *look) {
	limited, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	l.checkup, l.err = m.config.Hardware.Check(limited, l.gpu)
	if errors.Is(l.err, gpu.ErrNoDriver) {
		// One whose connection was opened anew meanwhile says so, too.
		l.checkup, l.err = m.config.Hardware.Check(limited, l.gpu)
	}
	select {
	case <-ctx.Done():
	case m.looks <- l:
	}
}

// looked takes in what a look saw, unless it tells of a time that is over, before a reset or long ago.
func (m *Monitor) looked(ctx context.Context, l *look) {
	if m.looking[l.gpu] != l {
		return
	}
	delete(m.looking, l.gpu)
	if errors.Is(l.err, context.DeadlineExceeded) {
		m.unanswered(ctx, l)
		return
	}
	if time.Since(l.began) > hang+m.config.Period {
		return
	}
	m.silence = 0
	delete(m.unheard, l.gpu)
	var trouble error
	switch {
	case l.err == nil:
		c := l.checkup
		// What comes after the look began is not known by it.
		c.GPU, c.At = l.gpu, l.began
		c.Conditions = append([]gpu.Condition{{Signal: gpu.SignalLost}, {Signal: gpu.SignalDriver}}, c.Conditions...)
		m.checked[l.gpu] = c
		m.telling.noticed(l.began)
		m.health = m.health.Check(m.config.Rules, c, m.config.Boot)
	case errors.Is(l.err, gpu.ErrNoDriver):
		m.unchecked(l.began, l.gpu, gpu.Condition{Signal: gpu.SignalDriver, Present: true, Detail: l.err.Error()})
	case errors.Is(l.err, gpu.ErrLost):
		m.lost(l.began, l.gpu, l.err.Error())
	default:
		trouble = l.err
	}
	m.trouble(ctx, "look at "+l.gpu, trouble)
	m.settle(ctx, l.gpu)
}

// unanswered takes in that a look ended with its time, which alone says nothing: the driver is being opened, or another GPU is reset, and nobody can be
// asked. While others can, it is the GPU that lets the driver take so long over it; when nobody can for very long, it is the driver.
func (m *Monitor) unanswered(ctx context.Context, l *look) {
	heard := false
	for name, c := range m.checked {
		heard = heard || name != l.gpu && c.At.After(l.began)
	}
	if m.unheard[l.gpu]++; !heard {
		m.unheard[l.gpu] = 0
	}
	switch now := time.Now(); {
	case m.unheard[l.gpu] >= mostUnheard:
		m.lost(now, l.gpu, fmt.Sprintf("the driver takes longer than %v over each look at it", hang))
	case m.silence >= int(deaf/m.config.Period):
		m.unchecked(now, l.gpu, gpu.Condition{Signal: gpu.SignalDriver, Present: true, Detail: fmt.Sprintf("no GPU can be asked anything for %v", deaf)})
	default:
		return
	}
	m.settle(ctx, l.gpu)
}

// lost takes in that a GPU does not answer. The driver does: it is who says so.
func (m *Monitor) lost(at time.Time, gpuName, detail string) {
	m.unchecked(at, gpuName, gpu.Condition{Signal: gpu.SignalLost, Present: true, Detail: detail}, gpu.Condition{Signal: gpu.SignalDriver})
}

// unchecked takes in why a GPU could not be looked at.
func (m *Monitor) unchecked(at time.Time, gpuName string, conditions ...gpu.Condition) {
	delete(m.checked, gpuName)
	m.telling.noticed(at)
	m.health = m.health.Check(m.config.Rules, gpu.Checkup{GPU: gpuName, Conditions: conditions, At: at}, m.config.Boot)
}
