package main

import (
	"context"
	"fmt"
	"math"

	"github.com/tessera-gpu/tessera/e2e/bench/placement/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// idea is something that was tried to come closer to the bound.
type idea struct {
	name   string
	policy func(shares []float64) fleet.Policy
}

// ideas are all that were tried, ours first.
func (b *bench) ideas() []idea {
	s, us := b.states, fleet.Ours(b.states, fit.Weights{})
	ideas := []idea{
		{ours, func([]float64) fleet.Policy { return us }},
		{"weights: shares of the demands, times size", func(shares []float64) fleet.Policy { return fleet.LeastLoss(s, b.sized(shares, 1)) }},
		{"weights: shares of the slices, times size", func(shares []float64) fleet.Policy { return fleet.LeastLoss(s, b.sized(shares, 2)) }},
		{"every profile expected alike", func(shares []float64) fleet.Policy { return fleet.Ours(s, b.weights(alike(len(shares)))) }},
		{knowing, func(shares []float64) fleet.Policy { return fleet.Ours(s, b.weights(shares)) }},
	}
	fixed := func(name string, p fleet.Policy) {
		ideas = append(ideas, idea{name, func([]float64) fleet.Policy { return p }})
	}
	fixed("ties: free slices before instances", fleet.Fuller(s))
	for _, stay := range []float64{.9, .7} {
		fixed(fmt.Sprintf("ties: value when %v of the instances are left", stay), fleet.Ahead(s, stay))
		fixed(fmt.Sprintf("loss of value when %v of the instances are left", stay), fleet.OnlyAhead(s, stay))
	}
	for _, plenty := range []float64{10, 40} {
		fixed(fmt.Sprintf("weights: scarcity in the fleet, %v slices", plenty), fleet.Scarce{Plenty: plenty})
	}
	for _, empty := range []int{1, 2} {
		fixed(fmt.Sprintf("refuse to open the last %d GPUs", empty), fleet.Keep{Policy: us, Empty: empty})
	}
	for _, weight := range []float64{.3, 1, 3} {
		fixed(fmt.Sprintf("lifetimes known, %v", weight), fleet.NewForeseen(s, weight))
	}
	fixed(moving, fleet.Moving{Policy: us})
	return ideas
}

// tried adds a row per idea: its mean over the mixes, and how much of the gap it closes.
func (b *bench) tried(ctx context.Context) error {
	var cells []cell
	for _, m := range b.mixes {
		cells = append(cells, cell{mix: m, gpus: goalGPUs, load: goalLoad, lifetime: exponential, seeds: b.seeds})
	}
	results, err := b.run(ctx, cells, func(shares []float64) map[string]fleet.Policy {
		policies := map[string]fleet.Policy{}
		for _, i := range b.ideas() {
			policies[i.name] = i.policy(shares)
		}
		return policies
	})
	if err != nil {
		return err
	}
	for _, i := range b.ideas() {
		mean := 0.0
		for _, r := range results {
			mean += r.closed(i.name) / float64(len(results))
		}
		row := report.Figure("gap closed: "+i.name, mean, "of the gap")
		row.Better = report.Higher
		for _, r := range results {
			row = row.Beside(r.mix.name, r.tallies[i.name].Acceptance())
		}
		b.Add(row)
	}
	return b.optimum(ctx)
}

// optimum adds what the best of all policies that move nothing and refuse nothing that fits would close of
// the gap, where that can be computed: with two GPUs, at loads of which about the usual part is served, and
// half.
func (b *bench) optimum(ctx context.Context) error {
	for _, load := range []float64{.25, goalLoad} {
		for _, m := range b.mixes {
			c := cell{mix: m, gpus: 2, load: load, lifetime: exponential}
			b.Doing("the best policy, %s", c)
			pair := fleet.NewPair(b.states, m.shares, load)
			us, err := pair.Of(ctx, fleet.Ours(b.states, fit.Weights{}))
			if err != nil {
				return err
			}
			best, err := pair.Best(ctx)
			if err != nil {
				return err
			}
			known, err := pair.Of(ctx, fleet.Ours(b.states, b.weights(m.shares)))
			if err != nil {
				return err
			}
			most := 0.0
			for seed := range b.seeds {
				most += fleet.ReplayRepack(b.states, c.gpus, b.stream(c, seed)).Acceptance() / float64(b.seeds)
			}
			row := report.Figure("gap closed: the best policy, "+c.String(), (best-us)/(most-us), "of the gap")
			row.Better = report.Higher
			b.Add(row.Beside(ours, us).Beside(knowing, known).Beside("best", best).Beside(bound, most))
		}
	}
	return nil
}

// sized returns the shares times a power of the sizes.
func (b *bench) sized(shares []float64, power float64) []float64 {
	weights := make([]float64, len(shares))
	for i, p := range b.states.Profiles {
		weights[i] = shares[i] * math.Pow(float64(p.Size), power)
	}
	return weights
}

// alike returns so many equal shares.
func alike(count int) []float64 {
	shares := make([]float64, count)
	for i := range shares {
		shares[i] = 1
	}
	return shares
}
