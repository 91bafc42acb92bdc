package harness

import (
	"context"
	"time"
)

// Again does something at once, and again after each pause, until end is called or it fails. So has what passes by itself not passed before everybody has
// seen it. End waits until it is over and returns why it failed; it must be called.
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
