// Command hook measures what CDI adds to the start of a container: the same bundle under a real runc,
// without CDI, with our specs, with them but without their hooks, and with NVIDIA's hooks in the place
// of ours. The variants run in turns, so that other load of the machine affects them equally.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scratch"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/runc"
)

// goal is the additional time for the start of a container, in milliseconds.
const goal = 30

// peer is the name of the baseline.
const peer = "nvidia-cdi-hook"

func main() {
	b := &bench{}
	flag.IntVar(&b.rounds, "rounds", 51, "start a container of each variant this often")
	flag.IntVar(&b.libraries, "libraries", 500, "how many libraries the image has in addition to the C library")
	flag.Parse()
	os.Exit(report.Main("hook", b.measure))
}

// bench is one run.
type bench struct {
	rounds, libraries int
	*report.Report
	folder scratch.Folder
	// ours and theirs are the programs of the hooks.
	ours, theirs string
}

func (b *bench) measure(ctx context.Context, r *report.Report) (err error) {
	b.Report = r
	if err := harness.CheckRoot(); err != nil {
		return err
	}
	if b.folder, err = scratch.New(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.folder.Close()) }()
	if err := b.build(ctx); err != nil {
		return err
	}
	image, err := b.image(ctx)
	if err != nil {
		return err
	}
	variants, err := b.variants(ctx)
	if err != nil {
		return err
	}
	s := stage{runc.Stage{Image: image, Dir: filepath.Join(b.folder.Memory, "c")}}
	if err := s.check(ctx, variants); err != nil {
		return err
	}
	b.Doing("starting %d containers of each of %d variants", b.rounds, len(variants))
	runs, err := s.turns(ctx, variants, b.rounds)
	if err != nil {
		return err
	}
	b.addRows(runs)
	return nil
}

// build builds the hooks with the flags of a release.
func (b *bench) build(ctx context.Context) error {
	b.Doing("building the hooks")
	b.ours, b.theirs = filepath.Join(b.folder.Disk, "tessera-hook"), filepath.Join(b.folder.Disk, "nvidia-cdi-hook")
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	return errors.Join(
		binaries.Compile(ctx, source, "./cmd/tessera-hook", b.ours),
		harness.BuildIn(ctx, "e2e/bench/modules/nvidia-hook", b.theirs, "-trimpath", "-ldflags=-s -w", "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook"),
		harness.BuildDriver(ctx),
	)
}

// addRows adds the rows.
func (b *bench) addRows(runs runs) {
	passed := func(r runc.Result) time.Duration { return r.Passed }
	worked := func(r runc.Result) time.Duration { return r.Worked }
	difference := func(more, less string, of func(runc.Result) time.Duration) float64 {
		return report.Milliseconds(runs.differences(more, less, of).Median())
	}
	of := fmt.Sprintf(", median of %d", b.rounds)
	plain := runs.samples(bare, passed)
	b.Add(
		report.Figure("hooks, added to the start of a container"+of, difference(withOurs, withoutHooks, passed), "ms").AtMost(goal).
			Peer(peer, difference(withTheirs, withoutHooks, passed)),
		report.Figure("hooks, processor time"+of, difference(withOurs, withoutHooks, worked), "ms").
			Peer(peer, difference(withTheirs, withoutHooks, worked)),
		report.Figure("CDI in all, added to the start of a container"+of, difference(withOurs, bare, passed), "ms").AtMost(goal).
			Peer(peer, difference(withTheirs, bare, passed)),
		report.Figure("CDI in all, processor time"+of, difference(withOurs, bare, worked), "ms").
			Peer(peer, difference(withTheirs, bare, worked)),
		report.Figure("start and end of a container without CDI"+of, report.Milliseconds(plain.Median()), "ms"),
		report.Figure("the same with CDI, in proportion"+of, runs.samples(withOurs, passed).Median().Seconds()/plain.Median().Seconds(), "times").
			Peer(peer, runs.samples(withTheirs, passed).Median().Seconds()/plain.Median().Seconds()),
	)
	b.Note("image with %d libraries; each container on a fresh overlay; whole GPU of an 8 × H100 node; both programs run the same four hooks", b.libraries)
}
