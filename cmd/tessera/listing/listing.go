// Package listing runs the verbs that list objects: once or, with --watch, until they are interrupted.
package listing

import (
	"context"
	"io"
	"time"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Verb is one call of a verb that lists objects.
type Verb struct {
	// Load lists the objects with the methods of the cluster and returns the output. With Answer.Watch it is called after each change, with a cluster whose
	// lists are from caches.
	Load   func(context.Context, *cluster.Cluster) (output.Result, error)
	Answer output.Flags
	// Out receives the list, ErrOut messages about it.
	Out, ErrOut io.Writer
}

// interval is the time between a change and its output: changes in it are printed together. A pod that starts changes its claim and itself several times.
const interval = 500 * time.Millisecond

// idle is the ratio of the pause after a list to the time that it took, for clusters in which a list takes longer than interval/idle.
const idle = 4

// Run writes the list. With Answer.Watch, it writes changes until ctx ends, which is no error, or until the API server does not respond any more.
func (v Verb) Run(ctx context.Context, c *cluster.Cluster) error {
	if v.Answer.Watch {
		return v.watch(ctx, c)
	}
	result, err := v.Load(ctx, c)
	if err != nil {
		return err
	}
	if result.Missing != nil {
		return result.Missing
	}
	if !v.Answer.IsText() {
		return v.Answer.Print(v.Out, result)
	}
	printer, err := v.Answer.Printer(v.Out, v.ErrOut)
	if err != nil {
		return err
	}
	return printer.Print(result)
}

// watch writes the list, and changes until ctx ends.
func (v Verb) watch(ctx context.Context, c *cluster.Cluster) error {
	printer, err := v.Answer.Printer(v.Out, v.ErrOut)
	if err != nil {
		return err
	}
	watched, changed, stop := c.Watched(ctx)
	defer stop()
	for first := true; ; first = false {
		start := time.Now()
		result, err := v.Load(ctx, watched)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the error is that of the interrupted request
		case err != nil:
			return err
		case first && result.Missing != nil: // later, an item of the arguments can be gone
			return result.Missing
		}
		if err := printer.Print(result); err != nil {
			return err
		}
		if !waitForChange(ctx, changed, max(interval, idle*time.Since(start))) {
			return nil
		}
	}
}

// waitForChange waits for a change and then until the pause is over, and discards the changes in it. It returns false when ctx ends.
func waitForChange(ctx context.Context, changed <-chan struct{}, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
	}
	select {
	case <-changed:
	default:
	}
	return true
}
