package prepare

import (
	"context"
	"fmt"
	"slices"
)

// Exclusive calls do while nobody prepares or takes back anything on the GPUs, in any process of the node: it waits for their locks,
// in the order in which everybody takes them, within ctx. What waits for them meanwhile names the purpose. Whether claims hold
// something there is for do to find out: nobody changes it below.
func (p *Preparer) Exclusive(ctx context.Context, gpus []string, purpose string, do func(context.Context) error) error {
	names := slices.Compact(slices.Sorted(slices.Values(gpus)))
	release, err := p.locks.acquireGPUsFor(ctx, names, purpose)
	if err != nil {
		return fmt.Errorf("%s: %w", purpose, err)
	}
	defer release()
	return do(ctx)
}
