package harness

import (
	"context"
	"time"
)

// Again calls do immediately and again after each pause, until end is called or do fails. It keeps a transient
// condition present until every observer has seen it. end waits for the last call and returns its error; it must be
// called.
func Again(ctx context.Context, pause time.Duration, do func() error) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			if err := do(); err != nil {
				ended <- err
				return
			}
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-tick.C:
			}
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}
}
