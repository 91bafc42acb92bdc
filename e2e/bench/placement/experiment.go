package main

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/e2e/bench/placement/fleet"
)

// The size and the load of the goals.
const (
	goalGPUs    = 100
	manyGPUs    = 1000
	goalLoad    = .95
	exponential = "exponential"
	lognormal   = "lognormal"
)

// cell is one experiment: all policies get the same streams.
type cell struct {
	mix      mix
	gpus     int
	load     float64
	lifetime string
	seeds    int
}

// result is the result of a cell, by policy, over all seeds.
type result struct {
	cell
	tallies map[string]fleet.Tally
}

// cells are the experiments to run.
func (b *bench) cells() []cell {
	var cells []cell
	for _, gpus := range or(b.sizes, []int{16, goalGPUs, manyGPUs}) {
		for _, lifetime := range []string{exponential, lognormal} {
			for _, load := range or(b.loads, []float64{.7, .85, goalLoad, 1}) {
				for _, m := range b.mixes {
					c := cell{mix: m, gpus: gpus, load: load, lifetime: lifetime, seeds: b.seeds}
					if gpus > goalGPUs && !b.full {
						c.seeds = min(c.seeds, 3)
					}
					if b.wants(c) {
						cells = append(cells, c)
					}
				}
			}
		}
	}
	return cells
}

// wants reports whether the cell belongs to the selected set: by default 100 GPUs, and 1,000 at the load
// of the goals; heavy tails at that load only.
func (b *bench) wants(c cell) bool {
	switch {
	case b.full:
		return true
	case c.lifetime == lognormal && c.load != goalLoad && len(b.loads) == 0:
		return false
	case len(b.sizes) > 0:
		return true
	case c.gpus == goalGPUs:
		return true
	}
	return c.gpus == manyGPUs && (c.load == goalLoad || len(b.loads) > 0) && c.lifetime == exponential
}

// or returns the first list that is not empty.
func or[T any](lists ...[]T) []T {
	for _, list := range lists {
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// stream draws the cell's stream of the seed.
func (b *bench) stream(c cell, seed int) *arrivals.Stream {
	size := 0.0
	for i, p := range b.states.Profiles {
		size += c.mix.shares[i] * float64(p.Size)
	}
	lifetime := arrivals.Exponential
	if c.lifetime == lognormal {
		lifetime = arrivals.Lognormal
	}
	rate := c.load * float64(b.states.Geometry.Slices()*c.gpus) / size
	return arrivals.Poisson{Rate: rate, Shares: c.mix.shares, Lifetime: lifetime, Count: b.count}.Stream(uint64(seed))
}

// run replays all cells through the policies, with one concurrent stream per processor.
func (b *bench) run(ctx context.Context, cells []cell, policiesFor func(shares []float64) map[string]fleet.Policy) ([]result, error) {
	tallies := make([][]map[string]fleet.Tally, len(cells))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, c := range cells {
		b.Doing("%s, %d GPUs, load %v, %s lifetimes, %d streams", c.mix.name, c.gpus, c.load, c.lifetime, c.seeds)
		tallies[i] = make([]map[string]fleet.Tally, c.seeds)
		policies := policiesFor(c.mix.shares)
		for seed := range c.seeds {
			group.Go(func() error {
				if ctx.Err() == nil {
					tallies[i][seed] = b.replay(policies, c.gpus, b.stream(c, seed))
				}
				return ctx.Err()
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	results := make([]result, len(cells))
	for i, c := range cells {
		results[i] = result{c, sum(tallies[i])}
	}
	return results, nil
}

// replay runs a stream through every policy and the bound.
func (b *bench) replay(policies map[string]fleet.Policy, gpus int, stream *arrivals.Stream) map[string]fleet.Tally {
	tallies := map[string]fleet.Tally{bound: fleet.ReplayRepack(b.states, gpus, stream)}
	for name, p := range policies {
		tallies[name] = fleet.Replay(b.states, gpus, p, stream)
	}
	return tallies
}

// sum adds the tallies of all seeds.
func sum(seeds []map[string]fleet.Tally) map[string]fleet.Tally {
	all := map[string]fleet.Tally{}
	for _, tallies := range seeds {
		for name, t := range tallies {
			all[name] = all[name].Plus(t)
		}
	}
	return all
}
