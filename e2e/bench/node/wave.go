package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// The smallest profile of an H100 and its number per GPU.
const (
	smallest = 19
	perGPU   = 7
)

// wave prepares the maximal number of MIG devices of the node concurrently, and then reads the
// agent's memory.
func (b *bench) wave(ctx context.Context) error {
	floor, idle, err := b.wavesOf(ctx, null)
	if err != nil {
		return fmt.Errorf("%s: %w", peer, err)
	}
	samples, memory, err := b.wavesOf(ctx, ours)
	if err != nil {
		return err
	}
	b.Add(
		report.Figure(fmt.Sprintf("56 slices of one node prepared at once, median of %d", b.waves), report.Milliseconds(samples.Median()), "ms").
			AtMost(250).Peer(peer, report.Milliseconds(floor.Median())),
		report.Figure("memory of the agent with 56 claims, RSS", memory, "MiB").AtMost(60).Peer(peer, idle),
	)
	return nil
}

// wavesOf returns the duration of each wave, and the largest memory of the plugin after one in MiB.
func (b *bench) wavesOf(ctx context.Context, which kind) (report.Samples, float64, error) {
	h, p, k, err := b.run(ctx, which)
	if err != nil {
		return nil, 0, err
	}
	defer p.Kill()
	defer k.Close()
	b.Doing("56 slices at once, %d times", b.waves)
	claims, err := b.smallestSlices(ctx, h)
	if err != nil {
		return nil, 0, err
	}
	var samples report.Samples
	var most float64
	for range b.waves {
		begin := time.Now()
		if err := together(claims, func(c *drapb.Claim) error { _, err := k.Prepare(ctx, c); return err }); err != nil {
			return nil, 0, fmt.Errorf("prepare: %w", err)
		}
		samples = append(samples, time.Since(begin))
		kib, err := p.Memory()
		if err != nil {
			return nil, 0, err
		}
		most = max(most, float64(kib)/1024)
		if err := together(claims, func(c *drapb.Claim) error { return k.Unprepare(ctx, c) }); err != nil {
			return nil, 0, fmt.Errorf("unprepare: %w", err)
		}
	}
	return samples, most, nil
}

// smallestSlices creates a claim for each of the smallest MIG devices of the host.
func (b *bench) smallestSlices(ctx context.Context, h *harness.Host) ([]*drapb.Claim, error) {
	var claims []*drapb.Claim
	for g := range h.Hardware.GPUs {
		for start := range perGPU {
			device, err := h.Slice(g, smallest, start)
			if err != nil {
				return nil, err
			}
			claim, err := h.Claim(ctx, fmt.Sprintf("slice-%d-%d", g, start), []gpu.Device{device})
			if err != nil {
				return nil, err
			}
			claims = append(claims, claim)
		}
	}
	return claims, nil
}

// together calls do for every claim at once and returns the first error.
func together(claims []*drapb.Claim, do func(*drapb.Claim) error) error {
	var group errgroup.Group
	for _, claim := range claims {
		group.Go(func() error { return do(claim) })
	}
	return group.Wait()
}

// idleness measures what the agent costs while idle.
func (b *bench) idleness(ctx context.Context) error {
	var shares []float64
	for _, which := range []kind{ours, null} {
		_, p, k, err := b.run(ctx, which)
		if err != nil {
			return err
		}
		share, err := b.idleShare(ctx, p)
		p.Kill()
		k.Close()
		if err != nil {
			return err
		}
		shares = append(shares, share)
	}
	b.Add(report.Figure(fmt.Sprintf("processor time while idle, over %v", b.idle), shares[0], "% of a core").AtMost(0.1).Peer(peer, shares[1]))
	return nil
}

// settling is how long a plugin may still be busy after its start.
const settling = 5 * time.Second

func (b *bench) idleShare(ctx context.Context, p plugin) (float64, error) {
	b.Doing("watching it idle for %v", b.idle)
	if err := pause(ctx, settling); err != nil {
		return 0, err
	}
	begin := time.Now()
	before, err := p.Worked()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, b.idle); err != nil {
		return 0, err
	}
	after, err := p.Worked()
	return 100 * float64(after-before) / float64(time.Since(begin)), err
}

// pause waits for the duration.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
