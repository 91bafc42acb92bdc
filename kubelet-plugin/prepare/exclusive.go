package prepare

import (
	"context"
	"fmt"
	"slices"
)

// Exclusive calls do while no claim is prepared or unprepared on the GPUs, by any process of the node. It waits for their locks within ctx.
// Errors of calls that wait for them name the purpose. do checks whether claims hold the GPUs; that cannot change while do runs.
func (p *Preparer) Exclusive(ctx context.Context, gpus []string, purpose string, do func(context.Context) error) error {
	names := slices.Compact(slices.Sorted(slices.Values(gpus)))
	release, err := p.locks.acquireGPUsFor(ctx, names, purpose)
	if err != nil {
		return fmt.Errorf("%s: %w", purpose, err)
	}
	defer release()
	return do(ctx)
}
