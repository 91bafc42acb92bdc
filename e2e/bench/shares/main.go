// Command shares measures what enforced shares of GPUs cost and whether their limits are right: random histories of pods, the start of containers with and without
// limits, the change of a limit, and how many GPUs the sharing pods of a trace need if they request less than they can use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scratch"
	"github.com/tessera-gpu/tessera/e2e/bench/shares/history"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

func main() {
	b := &bench{}
	flag.IntVar(&b.histories, "histories", 10_000, "how many histories of pods, half of them with each controller")
	flag.IntVar(&b.rounds, "rounds", 51, "start a container of each variant this often")
	flag.StringVar(&b.openb, "openb", os.Getenv("OPENB"), "folder of the openb trace; OPENB has it, too")
	flag.Parse()
	os.Exit(report.Main("shares", b.measure))
}

// bench is one run.
type bench struct {
	histories, rounds int
	openb             string
	*report.Report
	folder scratch.Folder
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
	for _, part := range []func(context.Context) error{b.runHistories, b.measureStarts, b.pack} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runHistories runs the histories and counts what was wrong.
func (b *bench) runHistories(ctx context.Context) error {
	b.Doing("running %d histories of pods", b.histories)
	var all history.Result
	for i := range b.histories {
		if err := ctx.Err(); err != nil {
			return err
		}
		controller := []gpu.Limiter{gpu.LimitedByDmem, gpu.LimitedByMisc}[i%2]
		folder := filepath.Join(b.folder.Memory, "h")
		result, err := history.Run(ctx, folder, controller, uint64(i))
		if err := errors.Join(err, os.RemoveAll(folder)); err != nil {
			return fmt.Errorf("history %d: %w", i, err)
		}
		for _, problem := range result.Problems {
			b.Note("history %d (%s): %s", i, controller, problem)
		}
		all.Add(result)
	}
	b.Add(report.Figure(fmt.Sprintf("limits that are not those of the claims, of %d histories", b.histories), float64(len(all.Problems)), "").AtMost(0))
	b.Note("histories: %d containers ran, %d did not start, %d limits changed, %d agents and %d hooks killed", all.Started, all.Refused, all.Resized, all.Killed, all.HooksKilled)
	return nil
}
