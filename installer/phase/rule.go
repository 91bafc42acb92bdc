package phase

import (
	"slices"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// rule is one guard and its decision. Rules are evaluated in order, so each may assume that no earlier rule matched.
type rule struct {
	name string
	when func(*view) bool
	then func(*view) Decision
}

// rules returns all rules in order. Each part of the lifecycle has its own file.
func rules() []rule {
	return slices.Concat(refusals, lost, notAvailable, outOfService, swap, inUseRules, placement, absence, runtime, modes, agents, proof, restore)
}

// ordered is the rule table of Next.
var ordered = rules()

// Next returns the phase of an observed node and the next action. It is total: every observation matches a rule.
func Next(o Observed) Decision { return decide(&o, ordered) }

func decide(o *Observed, table []rule) Decision {
	v := viewOf(o)
	d := match(v, table)
	d.Conditions, d.DriverRestart = conditions(v), v.driverRestart()
	return d
}

// match returns the decision of the first rule that matches.
func match(v *view, table []rule) Decision {
	for _, r := range table {
		if r.when(v) {
			return r.then(v)
		}
	}
	return Decision{Phase: v1alpha1.PhaseReady, Reason: ReasonInService, Action: Wait}
}
