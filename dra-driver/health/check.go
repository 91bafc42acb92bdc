package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// check is one check of a GPU.
type check struct {
	gpu   string
	began time.Time
	// rounds counts the rounds in which it was still in progress.
	rounds int
	// The remaining fields are set when it has ended.
	checkup gpu.Checkup
	err     error
}

// startChecks begins a round: a check of each GPU that has none in progress. Checks run concurrently, so that a GPU that hangs does not delay
// the others. A GPU whose check is in progress for longer than checkTimeout and a period counts as lost. The period is added because a
// check that only waited for the connection to the driver ends with checkTimeout, which is no evidence against the GPU.
func (m *Monitor) startChecks(ctx context.Context) {
	now := time.Now()
	node, known, _ := m.config.Inventory.Watch()
	m.removeMissingGPUs(ctx, node, known)
	if m.silentRounds++; len(node.GPUs) == 0 {
		m.silentRounds = 0
	}
	for _, g := range node.GPUs {
		name := g.Name()
		c, inProgress := m.running[name]
		if inProgress {
			// Rounds are counted instead of time, because a machine that was suspended has no rounds meanwhile. One more round than fits into
			// the timeout lets the result of a check that has timed out arrive first.
			m.continueCheck(ctx, c, now)
			continue
		}
		c = &check{gpu: name, began: now}
		m.running[name] = c
		go m.runCheck(ctx, c)
	}
}

// continueCheck counts a round of a check in progress. The rounds since a change of a GPU by this agent count, not those before its end.
func (m *Monitor) continueCheck(ctx context.Context, c *check, now time.Time) {
	if m.config.Hardware.ChangedSince(now.Add(-m.config.Period)) {
		c.rounds = 0
	}
	// Rounds are counted instead of time, because a machine that was suspended has no rounds meanwhile. One more round than fits into
	// the timeout lets the result of a check that has timed out arrive first.
	switch c.rounds++; {
	case c.rounds > int(checkTimeout/m.config.Period)+1:
		m.reporting.observed(c.began)
		m.setLost(now, c.gpu, fmt.Sprintf("a query of the GPU has not returned since %s: read the kernel log of the node (NVRM, Xid)", c.began.UTC().Format(time.DateTime)))
		m.clearFaults(ctx, c.gpu)
	case c.rounds == int(slowCheck/m.config.Period):
		klog.FromContext(ctx).Info("GPU is slow: a query has not returned yet; after the timeout the GPU counts as lost. If it repeats, read the kernel log of the node (NVRM, Xid)",
			"gpu", c.gpu, "since", c.began.UTC().Format(time.DateTime), "timeout", checkTimeout)
	}
}

// runCheck performs the check and passes it to Run.
func (m *Monitor) runCheck(ctx context.Context, l *check) {
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l.checkup, l.err = m.config.Hardware.Check(limited, l.gpu)
	if errors.Is(l.err, gpu.ErrNoDriver) {
		// The error may be of a connection that was replaced during the check.
		l.checkup, l.err = m.config.Hardware.Check(limited, l.gpu)
	}
	select {
	case <-ctx.Done():
	case m.results <- l:
	}
}

// handleResult processes a check, unless its result is outdated: it began before a reset, or long ago.
func (m *Monitor) handleResult(ctx context.Context, l *check) {
	if m.running[l.gpu] != l {
		return
	}
	delete(m.running, l.gpu)
	if l.err != nil && m.config.Hardware.ChangedSince(l.began) {
		m.logError(ctx, "check "+l.gpu, fmt.Errorf("during a change of MIG, which may be the cause: %w", l.err))
		return
	}
	if errors.Is(l.err, context.DeadlineExceeded) {
		m.handleTimeout(ctx, l)
		return
	}
	if time.Since(l.began) > checkTimeout+m.config.Period {
		return
	}
	m.silentRounds = 0
	delete(m.timeouts, l.gpu)
	var failed error
	switch {
	case l.err == nil:
		c := l.checkup
		// The result is as of the start: the check may have missed what happened later.
		c.GPU, c.At = l.gpu, l.began
		c.Conditions = append([]gpu.Condition{{Signal: gpu.SignalLost}, {Signal: gpu.SignalDriver}}, c.Conditions...)
		m.checked[l.gpu] = c
		m.reporting.observed(l.began)
		m.health = m.health.Check(m.config.Rules, c, m.config.Boot)
	case errors.Is(l.err, gpu.ErrNoDriver):
		m.setConditions(l.began, l.gpu, gpu.Condition{Signal: gpu.SignalDriver, Present: true, Detail: l.err.Error()})
	case errors.Is(l.err, gpu.ErrLost):
		m.setLost(l.began, l.gpu, l.err.Error())
	default:
		failed = l.err
	}
	m.logError(ctx, "check "+l.gpu, failed)
	m.clearFaults(ctx, l.gpu)
}

// handleTimeout processes a check that has timed out. That alone is no evidence: while the driver is being opened or another GPU is reset, no
// check succeeds. If checks of other GPUs that began later succeed, the GPU is lost. If none succeeds for silenceTimeout, the driver is
// missing.
func (m *Monitor) handleTimeout(ctx context.Context, l *check) {
	othersRespond := false
	for name, c := range m.checked {
		othersRespond = othersRespond || name != l.gpu && c.At.After(l.began)
	}
	if m.timeouts[l.gpu]++; !othersRespond {
		m.timeouts[l.gpu] = 0
	}
	switch now := time.Now(); {
	case m.timeouts[l.gpu] >= maxTimeouts:
		m.setLost(now, l.gpu, fmt.Sprintf("each check of the GPU takes longer than %v: read the kernel log of the node (NVRM, Xid)", checkTimeout))
	case m.silentRounds >= int(silenceTimeout/m.config.Period):
		m.setConditions(now, l.gpu, gpu.Condition{Signal: gpu.SignalDriver, Present: true, Detail: fmt.Sprintf("no GPU could be queried for %v", silenceTimeout)})
	default:
		return
	}
	m.clearFaults(ctx, l.gpu)
}

// setLost records that a GPU does not respond. The driver does, since it reported that.
func (m *Monitor) setLost(at time.Time, gpuName, detail string) {
	m.setConditions(at, gpuName, gpu.Condition{Signal: gpu.SignalLost, Present: true, Detail: detail}, gpu.Condition{Signal: gpu.SignalDriver})
}

// setConditions records why a GPU could not be checked.
func (m *Monitor) setConditions(at time.Time, gpuName string, conditions ...gpu.Condition) {
	delete(m.checked, gpuName)
	m.reporting.observed(at)
	m.health = m.health.Check(m.config.Rules, gpu.Checkup{GPU: gpuName, Conditions: conditions, At: at}, m.config.Boot)
}
