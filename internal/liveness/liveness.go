// Package liveness detects work that hangs, such as on a lock that is never released, so that a probe can restart the process.
package liveness

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Work is work that is done in calls, concurrently or one after another. It hangs if a call has not ended for Limit. It is safe for concurrent use.
type Work struct {
	// Name is the work in messages.
	Name string
	// Limit is longer than a call can take.
	Limit time.Duration

	mu sync.Mutex
	// calls are when the calls in progress have begun.
	calls map[*time.Time]struct{}
}

// Begin is called when a call begins; the returned function, when it ends.
func (w *Work) Begin() (end func()) {
	begun := new(time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = map[*time.Time]struct{}{}
	}
	w.calls[begun] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.calls, begun)
	}
}

// Check returns an error if the work hangs.
func (w *Work) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	for begun := range w.calls {
		longest = max(longest, time.Since(*begun))
	}
	if longest < w.Limit {
		return nil
	}
	return fmt.Errorf("%s hangs: a call has not ended for %v", w.Name, longest.Round(time.Second))
}

// CheckHTTP is Check for a health endpoint.
func (w *Work) CheckHTTP(*http.Request) error { return w.Check() }

// Repeat makes calls, one after another with pauses, until ctx ends. It returns nil.
func (w *Work) Repeat(ctx context.Context, pause time.Duration, call func(context.Context)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		end := w.Begin()
		call(ctx)
		end()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
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
