package subject

import (
	"context"
	"sync/atomic"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/memory"
)

// inMemory returns kube-scheduler with the whole cluster in the memory of the process.
func inMemory(ctx context.Context, spec Spec) (*contender, error) {
	f, err := fleet.New(spec.Fleet)
	if err != nil {
		return nil, err
	}
	content, err := Content(f, spec.Level)
	if err != nil {
		return nil, err
	}
	client := memory.New(content)
	c, err := newScheduler(ctx, spec, client)
	if err != nil {
		return nil, err
	}
	c.dialed = &atomic.Int64{}
	c.supply = func(b fleet.Batch) {
		units := b.Units()
		for _, unit := range units {
			if unit.Claim != nil {
				client.CreateClaim(unit.Claim)
			}
		}
		for _, unit := range units {
			client.CreatePod(unit.Pod)
		}
	}
	return c, nil
}

// Content is the whole fleet, filled to the level. The nodes share their devices.
func Content(f *fleet.Fleet, level fleet.Level) (memory.Content, error) {
	classes, err := fleet.Classes()
	c := memory.Content{Classes: classes}
	if err != nil {
		return c, err
	}
	for node := range f.Nodes {
		c.Nodes = append(c.Nodes, f.Node(node))
		c.Slices = append(c.Slices, f.Shared(node)...)
		for _, level := range level.Within() {
			held, err := f.Held(node, level)
			if err != nil {
				return c, err
			}
			c.Claims = append(c.Claims, held...)
		}
	}
	return c, nil
}
