// Command node measures the node agent: the real program on a fake host, called over its socket as
// kubelet does, with a real API server. The fake driver has no latency, so every figure is our own
// cost. The figures of a null plugin, built on the same helper, show the cost of the protocol
// itself in the same run.
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

// peer is the name of the baseline.
const peer = "no-op plugin"

// options are the durations of the run.
type options struct {
	rounds, waves, restarts, upgrades int
	idle, steady                      time.Duration
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == floorCommand {
		os.Exit(floor(os.Args[2:]))
	}
	var o options
	flag.IntVar(&o.rounds, "rounds", 1000, "Prepare and Unprepare this often per row")
	flag.IntVar(&o.waves, "waves", 7, "prepare 56 slices at once this often")
	flag.IntVar(&o.restarts, "restarts", 5, "start the agent, and delete its slices, this often")
	flag.IntVar(&o.upgrades, "upgrades", 3, "upgrade the agent this often")
	flag.DurationVar(&o.idle, "idle", time.Minute, "watch the idle agent this long")
	flag.DurationVar(&o.steady, "steady", 5*time.Minute, "count the requests of the agent with prepared claims this long")
	flag.Parse()
	os.Exit(report.Main("node", func(ctx context.Context, r *report.Report) error { return measure(ctx, r, o) }))
}

// measure runs everything, from the start of an API server to its end.
func measure(ctx context.Context, r *report.Report, o options) (err error) {
	bed, err := testbed.Open(ctx, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	b := &bench{Bed: bed, options: o}
	for _, part := range []func(context.Context) error{b.latency, b.latencyOnDisk, b.wave, b.idleness, b.reads, b.publishing, b.upgrade} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}
