package main

import (
	"fmt"
	"math"

	"github.com/tessera-gpu/tessera/e2e/bench/placement/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// reproduced is the tolerance of first fit against the reference's figure, beyond the part of the gap
// between ours and the bound that is to be closed.
const (
	reproduced = .005
	beyond     = .5
)

// addRows adds the rows: the reproduced figures, acceptance of every cell, then the details of the cells
// with goals.
func (b *bench) addRows(results []result) {
	for _, r := range results {
		if r.atGoal() {
			b.reproduce(r)
		}
	}
	for _, r := range results {
		b.accepted(r)
	}
	for _, r := range results {
		if r.atGoal() {
			b.gap(r)
			b.details(r)
		}
	}
}

// atGoal reports whether the designs have figures for the cell.
func (c cell) atGoal() bool {
	return c.gpus == goalGPUs && c.load == goalLoad && c.lifetime == exponential
}

func (c cell) String() string {
	text := fmt.Sprintf("%s, %d GPUs, load %v", c.mix.name, c.gpus, c.load)
	if c.lifetime != exponential {
		text += ", " + c.lifetime
	}
	return text
}

// reproduce compares first fit with the reference: the same experiment gives the same figure.
func (b *bench) reproduce(r result) {
	first, ok := r.tallies[lowStart]
	if !ok {
		return
	}
	off := math.Abs(first.Acceptance() - r.mix.inTree)
	b.Add(report.Figure("first fit from the reference's, "+r.String(), off, "of slices").AtMost(reproduced).
		Peer("first fit here", first.Acceptance()).Peer("reference", r.mix.inTree))
	if off > reproduced {
		b.Note("%s: another experiment than the reference's: %d arrivals, %d streams", r.cell, b.count, r.seeds)
	}
}

// accepted adds the acceptance of ours and of the others.
func (b *bench) accepted(r result) {
	row := report.Figure("accepted, "+r.String(), threeDigits(r.tallies[ours].Acceptance()), "of slices")
	row.Better = report.Higher
	if r.atGoal() {
		row = row.AtLeast(r.mix.goal)
	}
	b.Add(r.withPeers(row, fleet.Tally.Acceptance))
	if t, ok := r.tallies[demandKnown]; ok && r.atGoal() {
		b.Add(report.Figure("accepted, demand known, "+r.String(), threeDigits(t.Acceptance()), "of slices").AtLeast(r.mix.goal))
	}
	if r.gpus == manyGPUs && r.load == goalLoad && r.lifetime == exponential {
		row := report.Figure("behind the bound, "+r.String(), r.behind(ours), "points").AtMost(r.mix.behind)
		for name := range r.tallies {
			if name != ours && name != bound {
				row = row.Peer(name, r.behind(name))
			}
		}
		b.Add(row)
	}
}

// threeDigits rounds to as many digits as the goals have.
func threeDigits(v float64) float64 { return math.Round(1e3*v) / 1e3 }

// behind returns the points between a policy and the bound.
func (r result) behind(name string) float64 {
	return 100 * (r.tallies[bound].Acceptance() - r.tallies[name].Acceptance())
}

// gap adds how much of the gap to the bound is closed when the demand is known, and by moves, and the number
// of moves.
func (b *bench) gap(r result) {
	if _, ok := r.tallies[demandKnown]; ok {
		b.Add(report.Figure("gap closed with the demand known, "+r.String(), r.closed(demandKnown), "of the gap").AtLeast(beyond))
	}
	if t, ok := r.tallies[moving]; ok {
		b.Add(
			report.Figure("gap closed by moves, "+r.String(), r.closed(moving), "of the gap").AtLeast(beyond),
			report.Figure("moves, "+r.String(), 100*t.Moved(), "% of served"),
		)
	}
}

// closed returns how much of the gap between ours and the bound a policy closes.
func (r result) closed(name string) float64 {
	ours := r.tallies[ours].Acceptance()
	return (r.tallies[name].Acceptance() - ours) / (r.tallies[bound].Acceptance() - ours)
}

// details adds the further figures of a cell.
func (b *bench) details(r result) {
	allocated := report.Figure("allocated, "+r.String(), r.tallies[ours].Allocated(), "of slices")
	allocated.Better = report.Higher
	b.Add(r.withPeers(allocated, fleet.Tally.Allocated))
	b.Add(r.withPeers(report.Figure("stranded, "+r.String(), r.tallies[ours].Stranded(), "slices per GPU"), fleet.Tally.Stranded))
	for i, p := range b.states.Profiles {
		if r.mix.shares[i] == 0 {
			continue
		}
		row := report.Figure(fmt.Sprintf("accepted, %s, %s", p.Name, r.cell), r.tallies[ours].Of(i), "of demands")
		row.Better = report.Higher
		b.Add(r.withPeers(row, func(t fleet.Tally) float64 { return t.Of(i) }))
	}
}

// withPeers adds the figures of the other policies. The bound has no placements, so it strands nothing.
func (r result) withPeers(row report.Row, figure func(fleet.Tally) float64) report.Row {
	for name, t := range r.tallies {
		if name != ours && (name != bound || t.Stranded() != figure(t)) {
			row = row.Peer(name, figure(t))
		}
	}
	return row
}
