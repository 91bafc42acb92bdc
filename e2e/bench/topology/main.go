// Command topology replays streams of demands for whole GPUs through policies that choose the node and its
// GPUs. It measures how fast the links between the GPUs of a demand are, and how many demands are refused.
// It is a simulation without a cluster. The policy called ours is the function that the scheduler plugin
// calls.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

func main() {
	b := &bench{}
	flag.IntVar(&b.nodes, "nodes", 40, "nodes of the fleet")
	flag.IntVar(&b.seeds, "seeds", 4, "replay this many streams")
	flag.IntVar(&b.count, "arrivals", 30_000, "demands of a stream; the first quarter does not count")
	flag.Float64Var(&b.load, "load", .85, "GPUs requested at once, relative to all GPUs")
	flag.Parse()
	os.Exit(report.Main("topology", b.measure))
}

// bench is one run.
type bench struct {
	nodes, seeds, count int
	load                float64
	*report.Report
}

// The names of the policies in rows and goals.
const (
	ours     = "ours"
	accepter = "HAMi's set, fullest node"
)

// least is the goal of the quality; lost is the acceptance that may be given up for it.
const (
	least = .99
	lost  = .001
)

// policies are the compared policies.
func policies(h hardware) []policy {
	us := newChoices(h)
	return []policy{
		{"first fit", lowest{}, anyNode},
		{accepter, hami{newPairScores(h)}, fullest},
		{"go-gpuallocator's set, fullest node", newPartitions(h), fullest},
		{"Koordinator's partitions", blocks{}, fullest},
		{"our set, fullest node", us, fullest},
		{ours, us, us.score},
	}
}

func (b *bench) measure(ctx context.Context, r *report.Report) error {
	b.Report = r
	for _, h := range machines() {
		b.Doing("%s", h.name)
		tallies, err := b.run(ctx, h)
		if err != nil {
			return err
		}
		b.addRows(h, tallies)
	}
	return nil
}

// run replays all streams through all policies.
func (b *bench) run(ctx context.Context, h hardware) (map[string]tally, error) {
	size := 0.0
	for i, k := range teams() {
		size += shares()[i] * float64(k)
	}
	source := arrivals.Poisson{
		Rate: b.load * float64(b.nodes*len(h.gpus)) / size, Shares: shares(), Lifetime: arrivals.Exponential, Count: b.count,
	}
	all := policies(h)
	sums := make([]tally, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range all {
		group.Go(func() error {
			j, remembered := newJudge(h), map[question]bid{}
			for seed := range b.seeds {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				f := newFleet(p, b.nodes, len(h.gpus))
				f.bids = remembered
				sums[i] = sums[i].plus(f.replay(source.Stream(uint64(seed)), j))
			}
			return nil
		})
	}
	err := group.Wait()
	tallies := map[string]tally{}
	for i, p := range all {
		tallies[p.name] = sums[i]
	}
	return tallies, err
}

// addRows adds the rows of a machine.
func (b *bench) addRows(h hardware, tallies map[string]tally) {
	row := func(name string, figure func(tally) float64) report.Row {
		row := report.Figure(name+", "+h.name, figure(tallies[ours]), "")
		for name, t := range tallies {
			if name != ours {
				row = row.Peer(name, figure(t))
			}
		}
		return row
	}
	for i, k := range teams()[1:] {
		b.Add(row(fmt.Sprintf("quality of sets of %d", k), func(t tally) float64 { return t.of(i + 1) }).AtLeast(least))
	}
	b.Add(row("accepted", tally.acceptance).AtLeast(tallies[accepter].acceptance() - lost))
}
