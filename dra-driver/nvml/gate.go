package nvml

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pollDelay is the interval at which a caller that waits for a gate tries to lock it.
	pollDelay = 5 * time.Millisecond
	// precedence is how long new calls wait for lock. Calls are short: a caller of lock that did not succeed by then
	// waits for a call that hangs, and the other calls must not wait with it. They run for the same time before they
	// wait again.
	precedence = 2 * time.Second
)

// gate is a lock that calls of the driver hold together, and that a change which excludes them holds alone. It is used
// in the place of a sync.RWMutex because a call may hang: a writer that waits at a mutex blocks every reader.
type gate struct {
	mu sync.RWMutex
	// wanted is the time (Unix nanoseconds) until which no new call starts, so that lock succeeds.
	wanted atomic.Int64
}

// use locks the gate together with others, once no change has it alone; the caller calls leave. If ctx ends before, it
// returns the error of ctx, so that a health check can distinguish a GPU that hangs from a connection that is being
// changed.
func (g *gate) use(ctx context.Context) error {
	for ctx.Err() == nil {
		if time.Now().UnixNano() >= g.wanted.Load() && g.mu.TryRLock() {
			return nil
		}
		sleep(ctx, pollDelay)
	}
	return ctx.Err()
}

func (g *gate) leave() { g.mu.RUnlock() }

// lock waits until the calls in progress return and locks the gate alone; the caller calls unlock. It does not queue at
// mu, which would block every other call for as long as one hangs in the driver: it sets wanted for precedence, pauses
// for as long, and repeats that until it gets the lock or ctx ends.
func (g *gate) lock(ctx context.Context) error {
	var until time.Time
	defer func() { g.wanted.CompareAndSwap(until.UnixNano(), 0) }()
	for ctx.Err() == nil {
		if now := time.Now(); now.Sub(until) >= precedence {
			until = now.Add(precedence)
			g.wanted.Store(until.UnixNano())
		}
		if g.mu.TryLock() {
			return nil
		}
		sleep(ctx, pollDelay)
	}
	return fmt.Errorf("an earlier driver call has not returned, or a reset is in progress: %w", ctx.Err())
}

func (g *gate) unlock() { g.mu.Unlock() }
