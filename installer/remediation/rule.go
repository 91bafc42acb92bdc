package remediation

import (
	"slices"
)

// rule is one guard: where it holds, it decides. Rules are asked in order, so each may take for granted that no rule before it holds.
type rule struct {
	name string
	when func(*view) bool
	then func(*view) Decision
}

// rules returns all rules in order: what ends, what waits for a person, the parts of the way, and how it begins; each in a file of its own.
func rules() []rule { return slices.Concat(closing, asking, taking, resetting, proof, beginning) }

// ordered is what Next asks.
var ordered = rules()

// Next names the step of one GPU and the next action. It is total: whatever is observed, some rule decides.
func Next(o Observed) Decision { return decide(&o, ordered) }

func decide(o *Observed, table []rule) Decision {
	v := viewOf(o)
	for _, r := range table {
		if r.when(v) {
			return r.then(v)
		}
	}
	return Decision{Action: Wait}
}
