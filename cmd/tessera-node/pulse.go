package main

import (
	"context"
	"time"

	"github.com/tessera-gpu/tessera/internal/liveness"
)

const (
	// pulsePeriod is how often the parts of the agent are visited.
	pulsePeriod = 10 * time.Second
	// hangLimit is how long a visit, or one round of a loop that is watched, may take. None waits for the hardware: a call of the driver that hangs ends
	// with no restart, and the agent serves the other GPUs. A request to the API server in a round has a timeout.
	hangLimit = 5 * time.Minute
)

// newLiveness returns the work that must not hang.
func newLiveness() *liveness.Work { return &liveness.Work{Name: "the agent", Limit: hangLimit} }

// pulse visits the parts of the agent periodically: it waits for the loop of the monitor and takes the locks of the publisher, of the reports and of the
// refused changes of the MIG mode. It hangs as soon as one of them does.
func (a *agent) pulse(ctx context.Context) error {
	return a.liveness.Repeat(ctx, func(ctx context.Context) time.Duration {
		a.monitor.WasReset(nil, time.Now()) // a reset of no GPU changes nothing; it returns after the loop has processed it
		a.monitoring.Status()
		a.status.Depth()
		// With a context that has ended, no request is made.
		ended, end := context.WithCancel(ctx)
		end()
		_ = a.publisher.Accepted(ended)
		return pulsePeriod
	})
}
