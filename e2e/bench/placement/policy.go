package main

import (
	"slices"

	"github.com/tessera-gpu/tessera/e2e/bench/placement/fleet"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// The names of the policies in rows and goals.
const (
	ours        = "ours"
	bound       = "bound"
	firstFit    = "first fit"
	lowStart    = "first fit, low starts"
	moving      = "ours with moves"
	demandKnown = "ours, demand known"
)

// peers are the names of the other policies, in the order of the tables.
func peers() []string {
	return []string{demandKnown, moving, firstFit, lowStart, "best fit", "worst fit", "MFI", "FGD", "MCC"}
}

// policies are those to run on a demand of these shares. First fit is the in-tree plugin's: GPU by GPU, in
// the order that our agent publishes; with low starts it is what it does with devices in order of name.
func (b *bench) policies(shares []float64) map[string]fleet.Policy {
	count, popular := make([]float64, len(shares)), make([]float64, len(shares))
	for i, p := range b.states.Profiles {
		count[i], popular[i] = 1, shares[i]*float64(p.Size)
	}
	all := map[string]fleet.Policy{
		ours:        fleet.Ours(b.states, fit.Weights{}),
		demandKnown: fleet.Ours(b.states, b.weights(shares)),
		moving:      fleet.Moving{Policy: fleet.Ours(b.states, fit.Weights{})},
		firstFit:    fleet.FirstFit{Prefer: fleet.Published(b.states)},
		lowStart:    fleet.FirstFit{Prefer: fleet.LowStart(b.states)},
		"best fit":  fleet.BestFit(b.states),
		"worst fit": fleet.WorstFit(b.states),
		"MFI":       fleet.MFI(b.states),
		"FGD":       fleet.LeastLoss(b.states, popular),
		"MCC":       fleet.LeastLoss(b.states, count),
	}
	for name := range all {
		if len(b.only) > 0 && name != ours && !slices.Contains(b.only, name) {
			delete(all, name)
		}
	}
	return all
}

// weights converts the shares into the weights of the scheduler plugin.
func (b *bench) weights(shares []float64) fit.Weights {
	w := fit.Weights{Profiles: map[string]float64{}}
	for i, p := range b.states.Profiles {
		w.Profiles[p.Name] = shares[i]
	}
	return w
}
