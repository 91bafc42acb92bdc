package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scratch"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// warmUp is the number of calls before the measured ones.
const warmUp = 20

// subject is a claim whose preparation is measured.
type subject struct {
	name    string
	device  func(*harness.Host) (gpu.Device, error)
	changes []harness.Change
	// allowance is how much more than that of the null plugin the 99th percentile may be, in milliseconds; 0: it has no goal.
	allowance float64
	// shared: another claim shares the GPU all the time, so that the first share of a GPU is not
	// measured.
	shared bool
}

// subjects are the rows on records in memory.
func subjects() []subject {
	shared := func(index int, shape gpu.Shape) func(*harness.Host) (gpu.Device, error) {
		return func(h *harness.Host) (gpu.Device, error) {
			return gpu.Device{GPU: h.Hardware.GPUs[index].Name(), Use: gpu.Use{Shape: shape}}, nil
		}
	}
	return []subject{
		{name: "whole GPU", device: func(h *harness.Host) (gpu.Device, error) { return h.Whole(0), nil }, allowance: 4},
		{name: "MIG slice", device: func(h *harness.Host) (gpu.Device, error) { return h.Slice(1, 19, 0) }, allowance: 7},
		{name: "time share", device: shared(2, gpu.TimeShare), changes: []harness.Change{aShare}, shared: true},
		{name: "MPS share", device: shared(3, gpu.MPS), changes: []harness.Change{aShare}, shared: true},
	}
}

// aShare lets the claim consume 8 GiB of the shared device.
func aShare(claim *resourceapi.ResourceClaim) {
	if claim.Status.Allocation == nil {
		return
	}
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		share := types.UID(fmt.Sprintf("5b1c1b5e-0000-4000-8000-%012d", time.Now().UnixNano()%1e12))
		result.ShareID = &share
		result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
			harness.Driver + "/" + wire.Memory: resource.MustParse("8Gi"), harness.Driver + "/" + wire.Shares: resource.MustParse("1"),
		}
	}
}

// latency measures preparing and unpreparing single claims, one after the other.
func (b *bench) latency(ctx context.Context) error {
	floor, err := b.floorLatency(ctx)
	if err != nil {
		return err
	}
	h, p, k, err := b.run(ctx, ours)
	if err != nil {
		return err
	}
	defer p.Kill()
	defer k.Close()
	daemons, err := h.RunDaemons(ctx, b.Agent)
	if err != nil {
		return err
	}
	defer daemons.Stop()
	for _, s := range subjects() {
		lives, err := b.lives(ctx, h, p, k, s)
		switch {
		case errors.Is(err, errRefused):
			b.Note("%s: not measured: %v", s.name, err)
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.rows(s.name+", Prepare + Unprepare", lives, floor, s.allowance)
	}
	return b.noteSteps(ctx, p)
}

// latencyOnDisk measures the whole GPU with records in the folder of temporary files.
func (b *bench) latencyOnDisk(ctx context.Context) error {
	memory, err := scratch.InMemory(b.Folder.Disk)
	if err != nil {
		return err
	}
	if memory {
		b.Note("records on disk: not measured, as %s is in memory; set TMPDIR", b.Folder.Disk)
		return nil
	}
	h, err := b.Host(ctx, "")
	if err != nil {
		return err
	}
	if err := h.KeepRecords(b.Folder.Disk); err != nil {
		return err
	}
	p, k, err := b.runOn(ctx, ours, h)
	if err != nil {
		return err
	}
	defer p.Kill()
	defer k.Close()
	s := subjects()[0]
	lives, err := b.lives(ctx, h, p, k, s)
	if err != nil {
		return fmt.Errorf("%s, records on disk: %w", s.name, err)
	}
	b.rows(s.name+", records on disk", lives, measured{}, 0)
	return nil
}

// measured are the cycles of a claim: the duration of each, and the processor time of the plugin per
// cycle.
type measured struct {
	took   report.Samples
	worked time.Duration
}

func (b *bench) rows(name string, lives, floor measured, allowance float64) {
	middle := report.Figure(name+", p50", report.Milliseconds(lives.took.Median()), "ms")
	most := report.Figure(name+", p99", report.Milliseconds(lives.took.Quantile(0.99)), "ms")
	worked := report.Figure(name+", processor time", report.Milliseconds(lives.worked), "ms")
	if len(floor.took) > 0 {
		middle = middle.Peer(peer, report.Milliseconds(floor.took.Median()))
		least := report.Milliseconds(floor.took.Quantile(0.99))
		if most = most.Peer(peer, least); allowance > 0 {
			most = most.AtMost(least + allowance)
		}
		worked = worked.Peer(peer, report.Milliseconds(floor.worked))
	}
	b.Add(middle, most, worked)
}

// floorLatency is the same cycle with the null plugin.
func (b *bench) floorLatency(ctx context.Context) (measured, error) {
	h, p, k, err := b.run(ctx, null)
	if err != nil {
		return measured{}, err
	}
	defer p.Kill()
	defer k.Close()
	return b.lives(ctx, h, p, k, subjects()[0])
}

// errRefused is the error of an agent that cannot prepare such a claim at all.
var errRefused = errors.New("the agent refuses it")

// lives prepares and unprepares a claim repeatedly.
func (b *bench) lives(ctx context.Context, h *harness.Host, p plugin, k *harness.Kubelet, s subject) (measured, error) {
	b.Doing("%s, %d times", s.name, b.rounds)
	device, err := s.device(h)
	if err != nil {
		return measured{}, err
	}
	if s.shared {
		claim, err := h.Claim(ctx, "other-"+device.Shape.String(), []gpu.Device{device}, s.changes...)
		if err != nil {
			return measured{}, err
		}
		if _, err := k.Prepare(ctx, claim); err != nil {
			return measured{}, refused(ctx, err)
		}
		defer func() { _ = k.Unprepare(context.WithoutCancel(ctx), claim) }()
	}
	claim, err := h.Claim(ctx, "life-"+device.Shape.String(), []gpu.Device{device}, s.changes...)
	if err != nil {
		return measured{}, err
	}
	if _, err := repeat(ctx, k, claim, warmUp); err != nil {
		return measured{}, err
	}
	before, err := p.Worked()
	if err != nil {
		return measured{}, err
	}
	took, err := repeat(ctx, k, claim, b.rounds)
	if err != nil {
		return measured{}, err
	}
	after, err := p.Worked()
	return measured{took, (after - before) / time.Duration(b.rounds)}, err
}

func repeat(ctx context.Context, k *harness.Kubelet, claim *drapb.Claim, times int) (report.Samples, error) {
	var samples report.Samples
	for range times {
		took, err := life(ctx, k, claim)
		if err != nil {
			return nil, err
		}
		samples = append(samples, took)
	}
	return samples, nil
}

// refused distinguishes the end of the run from the agent's refusal.
func refused(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", errRefused, err)
}

// life is one cycle.
func life(ctx context.Context, k *harness.Kubelet, claim *drapb.Claim) (time.Duration, error) {
	begin := time.Now()
	if _, err := k.Prepare(ctx, claim); err != nil {
		return 0, fmt.Errorf("prepare: %w", err)
	}
	if err := k.Unprepare(ctx, claim); err != nil {
		return 0, fmt.Errorf("unprepare: %w", err)
	}
	return time.Since(begin), nil
}
