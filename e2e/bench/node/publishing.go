package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// publishing measures how long a node is without slices: after the agent's start, and after kubelet's,
// which deletes them.
func (b *bench) publishing(ctx context.Context) error {
	first, back, err := b.publishes(ctx, ours, b.restarts)
	if err != nil {
		return err
	}
	// The helper's own controller takes half a minute for the second.
	floorFirst, floorBack, err := b.publishes(ctx, null, 1)
	if err != nil {
		return fmt.Errorf("%s: %w", peer, err)
	}
	b.Add(
		report.Figure(fmt.Sprintf("start of the agent to published slices, longest of %d", b.restarts), first.Quantile(1).Seconds(), "s").
			AtMost(2).Peer(peer, floorFirst.Quantile(1).Seconds()),
		report.Figure(fmt.Sprintf("slices back after they were deleted, longest of %d", b.restarts), back.Quantile(1).Seconds(), "s").
			AtMost(3).Peer(peer, floorBack.Quantile(1).Seconds()),
	)
	return nil
}

func (b *bench) publishes(ctx context.Context, which kind, times int) (first, back report.Samples, err error) {
	b.Doing("starting it and deleting its slices, %d times", times)
	for range times {
		h, err := b.Host(ctx, "")
		if err != nil {
			return nil, nil, err
		}
		started, returned, err := b.published(ctx, which, h)
		if err != nil {
			return nil, nil, err
		}
		first, back = append(first, started), append(back, returned)
	}
	return first, back, nil
}

func (b *bench) published(ctx context.Context, which kind, h *harness.Host) (started, returned time.Duration, err error) {
	whole := func(ctx context.Context) error { _, err := h.Pool(ctx); return err }
	begin := time.Now()
	p, err := which(b, h, "pod")
	if err != nil {
		return 0, 0, err
	}
	defer p.Kill()
	if err := b.Await(ctx, h, "slices", whole); err != nil {
		return 0, 0, err
	}
	started = time.Since(begin)
	begin = time.Now()
	if err := b.Plane.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, h.Selector()); err != nil {
		return 0, 0, err
	}
	if err := b.Await(ctx, h, "slices again", whole); err != nil {
		return 0, 0, err
	}
	return started, time.Since(begin), nil
}
