package nvml

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestLockIsNotStarved has a call that hangs for longer than others wait, and then calls in close succession without a
// pause, as those of WatchEvents.
func TestLockIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		must(t, g.use(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		locked := make(chan error)
		go func() { locked <- g.lock(ctx) }()
		sleep(ctx, precedence+precedence/2)
		others, end := context.WithCancel(ctx)
		defer end()
		go func() {
			for g.use(others) == nil {
				sleep(others, precedence/8)
				g.leave()
			}
		}()
		synctest.Wait()
		g.leave()
		if err := <-locked; err != nil {
			t.Error(err)
		}
	})
}
