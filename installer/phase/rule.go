package phase

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// rule is one guard: where it holds, it decides. Rules are asked in order, so each may take for granted that no rule before it holds.
type rule struct {
	name string
	when func(*view) bool
	then func(*view) Decision
}

// rules returns all rules in order: the parts of the way, each in a file of its own.
func rules() []rule {
	return slices.Concat(refusals, lost, notAvailable, outOfService, swap, absence, runtime, modes, agents, proof, restore)
}

// ordered is what Next asks.
var ordered = rules()

// Next names the phase of an observed node and the next action. It is total: whatever is observed, some rule decides.
func Next(o Observed) Decision { return decide(&o, ordered) }

func decide(o *Observed, table []rule) Decision {
	v := viewOf(o)
	for _, r := range table {
		if r.when(v) {
			d := r.then(v)
			d.Conditions = conditions(v)
			return d
		}
	}
	return Decision{Phase: v1alpha1.PhaseReady, Reason: ReasonInService, Action: Wait, Conditions: conditions(v)}
}
