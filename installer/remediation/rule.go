package remediation

import (
	"slices"
)

// rule is one guard and its decision. Rules are evaluated in order, so each may assume that no earlier rule matched.
type rule struct {
	name string
	when func(*view) bool
	then func(*view) Decision
}

// rules returns all rules in order: completion, waiting for an administrator, the steps of an attempt, and its start. Each group has its own file.
func rules() []rule {
	return slices.Concat(closing, awaitingRepair, taking, resetting, proof, beginning)
}

// ordered is the rule table of Next.
var ordered = rules()

// Next returns the remediation step of one GPU and the next action. It is total: every observation yields a decision.
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
