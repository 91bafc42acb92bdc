package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/e2e/bench/placement/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// openbServed is the share of the trace's pods that the bound serves.
const openbServed = .98

// trace replays the openb trace with its own times: pods that request one GPU or a part of it, each as the
// smallest profile with the requested compute, on the smallest fleet on which the bound serves enough of
// them for the policies to differ.
func (b *bench) trace() error {
	if b.openb == "" {
		b.Note("openb: not run")
		return nil
	}
	demands, err := b.openbDemands(b.openb)
	if err != nil {
		return fmt.Errorf("read the openb trace: %w", err)
	}
	stream := arrivals.New(demands, len(demands)/4)
	shares := make([]float64, len(b.states.Profiles))
	for _, d := range demands {
		shares[d.Kind] += 1 / float64(len(demands))
	}
	gpus := 1
	for fleet.ReplayRepack(b.states, gpus, stream).Acceptance() < openbServed {
		gpus++
	}
	b.Doing("openb, %d pods, %d GPUs", len(demands), gpus)
	r := result{cell: cell{mix: mix{name: "openb"}, gpus: gpus}, tallies: b.replay(b.policies(shares), gpus, stream)}
	row := report.Figure(fmt.Sprintf("accepted, openb, %d GPUs", gpus), r.tallies[ours].Acceptance(), "of slices")
	row.Better = report.Higher
	b.Add(r.withPeers(row, fleet.Tally.Acceptance))
	return nil
}

// openbDemands reads the pods.
func (b *bench) openbDemands(folder string) ([]arrivals.Demand, error) {
	pods, err := arrivals.ReadOpenb(folder)
	if err != nil {
		return nil, err
	}
	var demands []arrivals.Demand
	for _, p := range pods {
		demands = append(demands, arrivals.Demand{Kind: b.smallest(p.Milli), Arrives: float64(p.Arrives), Leaves: float64(p.Leaves)})
	}
	slices.SortStableFunc(demands, func(a, b arrivals.Demand) int { return cmp.Compare(a.Arrives, b.Arrives) })
	return demands, nil
}

// smallest returns the smallest profile that has so many thousandths of the GPU's compute.
func (b *bench) smallest(milli int) int {
	last := len(b.states.Profiles) - 1
	for i, p := range b.states.Profiles {
		if 1000*p.ComputeSlices >= milli*b.states.Profiles[last].ComputeSlices {
			return i
		}
	}
	return last
}
