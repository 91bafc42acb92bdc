// Command health measures how soon a faulted GPU is tainted, and what monitoring costs: the real agent on a fake host with eight GPUs, a
// real API server, and a client in the place of kubelet. Detection begins when the fault is injected, so that every figure includes the
// driver's event and the monitor's check. The cost of a storm of events is measured alternately with periods without events, in the same
// run.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/testbed"
)

// options are the durations of the run.
type options struct {
	boots, turns, repeats, storm int
	idle                         time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.boots, "boots", 5, "inject 24 XIDs and 8 losses in each of so many boots of the machine")
	flag.IntVar(&o.turns, "turns", 8, "so many turns of calm and storm")
	flag.IntVar(&o.repeats, "lives", 150, "Prepare and Unprepare this often in each")
	flag.IntVar(&o.storm, "storm", 1000, "XIDs in a second of a storm")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "watch the idle agent this long")
	flag.Parse()
	os.Exit(report.Main("health", func(ctx context.Context, r *report.Report) error { return measure(ctx, r, o) }))
}

// measure runs everything, from the start of an API server to its end.
func measure(ctx context.Context, r *report.Report, o options) (err error) {
	bed, err := testbed.Open(ctx, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	b := &bench{Bed: bed, options: o}
	if b.adjustable, err = b.Build(ctx, "./cmd/tessera-node", "-tags=grpcnotrace,crashtest"); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{b.detection, b.storms, b.idleness} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}
