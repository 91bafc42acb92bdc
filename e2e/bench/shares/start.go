package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/runc"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
)

// The variants of a container's start. That of the no-op plugin gives the container nothing.
const (
	noop      = "no-op plugin"
	unlimited = "time share"
	limited   = "time share with a limit"
)

// goal is the additional time for the start of a container, in milliseconds.
const goal = 30

// program ends at once.
const program = "int main(void) { return 0; }"

// measureStarts measures the start of containers under the real runc, with the driver 615 of the fake GPU, and the change of a limit of a running one.
func (b *bench) measureStarts(ctx context.Context) (err error) {
	b.Doing("building the hook")
	hookProgram := filepath.Join(b.folder.Disk, "tessera-hook")
	mirror := filepath.Join(b.folder.Disk, "fakegpu")
	source, err := binaries.Source()
	if err == nil {
		err = errors.Join(binaries.Compile(ctx, source, "./cmd/tessera-hook", hookProgram), harness.Build(ctx, mirror, "./e2e/fake/fakegpu/cmd/fakegpu"), harness.BuildDriver(ctx))
	}
	if err != nil {
		return err
	}
	m, err := b.newMachine(ctx)
	if err != nil {
		return err
	}
	defer m.session.Close() //nolint:contextcheck // NVML calls have no context
	stop := m.serve(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	specs, err := m.specs(hookProgram, mirror)
	if err != nil {
		return err
	}
	image, err := b.folder.Sub("image")
	if err == nil {
		err = runc.BuildImage(ctx, image, program)
	}
	if err != nil {
		return err
	}
	s := runc.Stage{Image: image, Dir: filepath.Join(b.folder.Memory, "c")}
	passed, err := b.turns(ctx, s, specs)
	if err != nil {
		return err
	}
	b.addStarts(passed)
	return b.measureChange(ctx, m)
}

// turns starts a container of each variant in every round, and returns their durations. Each is the first of a round equally often.
func (b *bench) turns(ctx context.Context, s runc.Stage, specs map[string]oci.Spec) (map[string]report.Samples, error) {
	variants := []string{noop, unlimited, limited}
	b.Doing("starting %d containers of each of %d variants", b.rounds, len(variants))
	passed := map[string]report.Samples{}
	for round := range b.rounds {
		for i := range variants {
			name := variants[(round+i)%len(variants)]
			result, err := s.Run(ctx, specs[name], "/program")
			if err == nil && result.Status != 0 {
				err = fmt.Errorf("%s: status %d\n%s", name, result.Status, result.Output)
			}
			if err != nil {
				return nil, err
			}
			passed[name] = append(passed[name], result.Passed)
		}
	}
	return passed, nil
}

func (b *bench) addStarts(passed map[string]report.Samples) {
	difference := func(more, less string) float64 {
		var all report.Samples
		for i, d := range passed[more] {
			all = append(all, d-passed[less][i])
		}
		return report.Milliseconds(all.Median())
	}
	of := fmt.Sprintf(", median of %d", b.rounds)
	b.Add(
		report.Figure("limit of memory, added to the start of a container"+of, difference(limited, unlimited), "ms").AtMost(goal),
		report.Figure("start and end of a container with a limited share"+of, report.Milliseconds(passed[limited].Median()), "ms").
			Peer(noop, report.Milliseconds(passed[noop].Median())),
	)
}

// measureChange measures the change of the limit of a claim with one container, and the two calls of the driver that it needs at least.
func (b *bench) measureChange(ctx context.Context, m *machine) error {
	group, err := fakegpu.AddGroup(m.dir, "/kubepods/running", "misc", "dmem")
	if err != nil {
		return err
	}
	if err := m.connect(hook.LimitRequest{Group: "/kubepods/running", Devices: []hook.LimitedDevice{{Claim: m.claim.UID}}}); err != nil {
		return err
	}
	var change, floor report.Samples
	for i := range 20 * b.rounds {
		bytes := uint64(1+i%2) << 30
		began := time.Now()
		if _, err := m.server.Resize(ctx, limiter.Resize{Claim: m.claim.UID, Bytes: bytes}); err != nil {
			return err
		}
		change = append(change, time.Since(began))
		began = time.Now()
		if err := m.session.LimitMemory(ctx, m.gpu.Name(), group, bytes); err != nil {
			return err
		}
		floor = append(floor, time.Since(began))
	}
	b.Add(report.Figure(fmt.Sprintf("change of the limit of a claim, median of %d", len(change)), report.Milliseconds(change.Median()), "ms").
		Peer("the driver's calls", report.Milliseconds(floor.Median())))
	return nil
}
