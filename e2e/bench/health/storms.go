package main

import (
	"context"
	"fmt"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// stormXID is the XID of a storm: an invalid memory access by a program, which occurs in large numbers.
const stormXID = 31

// settling is how long an agent may still be busy after its start.
const settling = 5 * time.Second

// storms measures Prepare and Unprepare of a MIG device of one GPU without events and while another GPU reports
// XIDs, alternately.
func (b *bench) storms(ctx context.Context) error {
	h, err := b.Host(ctx, rules)
	if err != nil {
		return err
	}
	a, k, err := b.run(ctx, h, b.Agent)
	if err != nil {
		return err
	}
	defer a.Kill()
	defer k.Close()
	device, err := h.Slice(0, 19, 0)
	if err != nil {
		return err
	}
	claim, err := h.Claim(ctx, "life", []gpu.Device{device})
	if err != nil {
		return err
	}
	if _, err := b.lives(ctx, k, claim); err != nil { // warm
		return err
	}
	var calm, wild report.Samples
	posted, lasted := 0, time.Duration(0)
	for turn := range b.turns {
		b.Doing("turn %d of %d", turn+1, b.turns)
		took, err := b.lives(ctx, k, claim)
		if err != nil {
			return err
		}
		calm = append(calm, took...)
		began, end := time.Now(), begin(ctx, h, b.storm)
		took, err = b.lives(ctx, k, claim)
		count, failed := end()
		if err != nil || failed != nil {
			return fmt.Errorf("under a storm: %w", joined(err, failed))
		}
		wild = append(wild, took...)
		posted, lasted = posted+count, lasted+time.Since(began)
	}
	ratio := float64(wild.Median()) / float64(calm.Median())
	b.Add(
		report.Figure("MIG slice, Prepare, in calm, p50", report.Milliseconds(calm.Median()), "ms"),
		report.Figure("MIG slice, Prepare, in calm, p99", report.Milliseconds(calm.Quantile(.99)), "ms"),
		report.Figure(fmt.Sprintf("MIG slice, Prepare, under %d XIDs/s, p50", b.storm), report.Milliseconds(wild.Median()), "ms"),
		report.Figure(fmt.Sprintf("MIG slice, Prepare, under %d XIDs/s, p99", b.storm), report.Milliseconds(wild.Quantile(.99)), "ms"),
		report.Figure("the same in proportion to calm, p50", ratio, "times"),
		report.Figure("the same in proportion to calm, p99", float64(wild.Quantile(.99))/float64(calm.Quantile(.99)), "times"),
	)
	b.Note("storms of %.0f XIDs/s in fact, %d in all; %d lives of a claim with and without", float64(posted)/lasted.Seconds(), posted, len(calm))
	return nil
}

// begin lets the last GPU of the host report XIDs; end ends it and returns the number of XIDs.
func begin(ctx context.Context, h *harness.Host, rate int) (end func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		count int
		err   error
	}
	done := make(chan result, 1)
	go func() {
		count, err := fakegpu.Storm(ctx, h.Machine(), fakegpu.On(len(h.Hardware.GPUs)-1), stormXID, rate)
		done <- result{count, err}
	}()
	return func() (int, error) {
		cancel()
		r := <-done
		return r.count, r.err
	}
}

// lives prepares and unprepares a claim repeatedly, and returns the duration of each Prepare.
func (b *bench) lives(ctx context.Context, k *harness.Kubelet, claim *drapb.Claim) (report.Samples, error) {
	var samples report.Samples
	for range b.repeats {
		begin := time.Now()
		if _, err := k.Prepare(ctx, claim); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
		samples = append(samples, time.Since(begin))
		if err := k.Unprepare(ctx, claim); err != nil {
			return nil, fmt.Errorf("unprepare: %w", err)
		}
	}
	return samples, nil
}

func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// idleness measures what monitoring the GPUs costs without events, and in a storm.
func (b *bench) idleness(ctx context.Context) error {
	usual, err := b.busy(ctx, 0, b.Agent)
	if err != nil {
		return err
	}
	blind, err := b.busy(ctx, 0, b.adjustable, "TESSERA_TEST_LOOK=1h")
	if err != nil {
		return err
	}
	stormy, err := b.busy(ctx, b.storm, b.Agent)
	if err != nil {
		return err
	}
	b.Add(
		report.Figure(fmt.Sprintf("processor time of the agent while idle, over %v", b.idle), usual, "% of a core").Peer("a check once an hour", blind),
		report.Figure(fmt.Sprintf("processor time of the agent under %d XIDs/s", b.storm), stormy, "% of a core"),
	)
	return nil
}

// busy returns the share of a processor that an agent uses, in percent, at this rate of XIDs per second.
func (b *bench) busy(ctx context.Context, rate int, program string, environment ...string) (float64, error) {
	h, err := b.Host(ctx, rules)
	if err != nil {
		return 0, err
	}
	a, k, err := b.run(ctx, h, program, environment...)
	if err != nil {
		return 0, err
	}
	defer a.Kill()
	defer k.Close()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = k.WatchHealth(watching, &harness.Health{}, nil) }() // as kubelet does; it ends with the agent
	b.Doing("watching it for %v", b.idle)
	if err := pause(ctx, settling); err != nil {
		return 0, err
	}
	if rate > 0 {
		end := begin(ctx, h, rate)
		defer end() //nolint:errcheck // what counts is measured
	}
	begin := time.Now()
	before, err := a.Worked()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, b.idle); err != nil {
		return 0, err
	}
	after, err := a.Worked()
	return 100 * float64(after-before) / float64(time.Since(begin)), err
}
