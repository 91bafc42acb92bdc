package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/testbed"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// goal is the time from a fault until the GPU is tainted and the status of its pods contains the fault, in milliseconds.
const goal = 2000

// found are the times from faults until they are published.
type found struct{ taint, kubelet report.Samples }

// detection measures how soon XIDs, and GPUs that no longer respond, are published and reported to kubelet.
func (b *bench) detection(ctx context.Context) error {
	h, err := b.Host(ctx, rules)
	if err != nil {
		return err
	}
	w := follow(ctx, b.Plane.Client, h)
	defer w.end()
	var xids, losses found
	for boot := range b.boots {
		b.Doing("24 XIDs and 8 losses, boot %d of %d", boot+1, b.boots)
		if err := fakegpu.Reboot(h.Machine()); err != nil {
			return err
		}
		if err := b.boot(ctx, h, w, &xids, &losses); err != nil {
			return err
		}
	}
	b.rows("XID", xids)
	b.rows("GPU that does not answer", losses)
	b.Note("%d XIDs, %d losses, from the injection; eight GPUs with all shapes, %d devices. A taint counts when the API server has it on every device of the GPU", len(xids.taint), len(losses.taint), w.devices())
	return nil
}

func (b *bench) rows(what string, f found) {
	add := func(where string, s report.Samples) {
		b.Add(
			report.Figure(what+" → "+where+", p50", report.Milliseconds(s.Median()), "ms"),
			report.Figure(what+" → "+where+", p99", report.Milliseconds(s.Quantile(.99)), "ms").AtMost(goal),
		)
	}
	add("taint at the API server", f.taint)
	add("kubelet", f.kubelet)
}

// boot injects the faults of one boot of the machine.
func (b *bench) boot(ctx context.Context, h *harness.Host, w *watched, xids, losses *found) error {
	a, k, err := b.run(ctx, h, b.Agent)
	if err != nil {
		return err
	}
	defer a.Kill()
	defer k.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	known, reports, err := b.listen(ctx, h, k, w)
	if err != nil {
		return err
	}
	for code := 901; code <= 903; code++ {
		for i := range h.Hardware.GPUs {
			inject := func() error { return fakegpu.XID(h.Machine(), fakegpu.On(i), code) }
			if err := b.find(ctx, h, w, sign{inject, gpu.SignalXID, fmt.Sprint(code), fmt.Sprintf("XID %d", code), i}, known, reports, xids); err != nil {
				return err
			}
		}
	}
	for i := range h.Hardware.GPUs {
		inject := func() error { return fakegpu.RequireReset(h.Machine(), i) }
		if err := b.find(ctx, h, w, sign{inject, gpu.SignalLost, "", "lost", i}, known, reports, losses); err != nil {
			return err
		}
	}
	return nil
}

// listen reads the reports to kubelet and returns when all devices are healthy: the recorded reports, and a channel that receives a
// value with every report.
func (b *bench) listen(ctx context.Context, h *harness.Host, k *harness.Kubelet, w *watched) (*harness.Health, <-chan struct{}, error) {
	known, reports := &harness.Health{}, make(chan struct{}, 1)
	go func() {
		_ = k.WatchHealth(ctx, known, func() { // it ends with the boot
			select {
			case reports <- struct{}{}:
			default:
			}
		})
	}()
	return known, reports, b.Await(ctx, h, "all devices to be healthy", func(context.Context) error {
		if devices, _ := known.Known(); devices == 0 || len(known.Unhealthy()) > 0 || w.marked(driverKey) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// sign is a fault and its report: the taint's key and value, and words of the message to kubelet.
type sign struct {
	inject func() error
	signal gpu.Signal
	value  string
	words  string
	index  int
}

// find injects a fault, at a moment independent of all intervals, and measures.
func (b *bench) find(ctx context.Context, h *harness.Host, w *watched, s sign, known *harness.Health, reports <-chan struct{}, into *found) error {
	if err := pause(ctx, rand.N(time.Second)); err != nil {
		return err
	}
	whole := h.Whole(s.index)
	tainted := w.await(whole.GPU, s.signal, s.value)
	begin := time.Now()
	if err := s.inject(); err != nil {
		return err
	}
	late := time.NewTimer(testbed.Timeout)
	defer late.Stop()
	reported := false
	for tainted != nil || !reported {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			_, message := known.Of(w.device(whole))
			return fmt.Errorf("GPU %d: %s %s not published after %v; kubelet has %q\n%s", s.index, s.signal, s.value, testbed.Timeout, message, testbed.Tail(h.Log()))
		case <-tainted:
			into.taint = append(into.taint, time.Since(begin))
			tainted = nil
		case <-reports:
			status, message := known.Of(w.device(whole))
			if !reported && status != drahealthv1.HealthStatus_UNKNOWN && strings.Contains(message, s.words) {
				into.kubelet = append(into.kubelet, time.Since(begin))
				reported = true
			}
		}
	}
	return nil
}
