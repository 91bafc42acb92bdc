// Package liveness detects work that hangs, such as on a lock that is never released, so that a probe can restart the process.
package liveness

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Work is work that is done in calls, concurrently or one after another. It hangs if a call does not end for Limit. It is safe for concurrent use.
//
// Only the check reads the clock and takes a lock: a call is counted in the current one of two periods when it begins,
// and there when it ends. The check begins a new period when no call of the one before is in progress any more. So
// calls of the period before have all begun before the current one, and hang if they are in progress Limit after its
// begin.
type Work struct {
	// Name is the work in messages.
	Name string
	// Limit is longer than a call can take.
	Limit time.Duration

	// period is the number of the current period; its calls in progress are inProgress[period%2].
	period     atomic.Uint32
	inProgress [2]atomic.Int64

	mu sync.Mutex // of checks
	// begun is when the current period began.
	begun time.Time
}

// Begin is called when a call begins; the returned function, when it ends.
func (w *Work) Begin() (end func()) {
	// If periods begin between the two, the call is counted in a period that is not older than its begin.
	calls := &w.inProgress[w.period.Load()%2]
	calls.Add(1)
	return func() { calls.Add(-1) }
}

// Check returns an error if the work hangs. It is called regularly: a hang is found Limit after the first or second check during the call.
func (w *Work) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inProgress[(w.period.Load()+1)%2].Load() == 0 {
		w.period.Add(1)
		w.begun = time.Now()
		return nil
	}
	if since := time.Since(w.begun); since >= w.Limit {
		return fmt.Errorf("%s hangs: a call has not ended for %v", w.Name, since.Round(time.Second))
	}
	return nil
}

// CheckHTTP is Check for a health endpoint.
func (w *Work) CheckHTTP(*http.Request) error { return w.Check() }

// Repeat makes calls, one after another with the pauses that they return, until ctx ends. It returns nil.
func (w *Work) Repeat(ctx context.Context, call func(context.Context) (pause time.Duration)) error {
	for {
		end := w.Begin()
		pause := call(ctx)
		end()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Await checks the work until it hangs, and returns the error; nil if ctx ends before.
func (w *Work) Await(ctx context.Context) error {
	tick := time.NewTicker(w.Limit / 8)
	defer tick.Stop()
	for {
		if err := w.Check(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
