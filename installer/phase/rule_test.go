package phase

import (
	"slices"
	"testing"
)

// TestEveryRuleCounts removes one rule at a time: the model must fail with at most one disturbance, otherwise the rule is redundant.
func TestEveryRuleCounts(t *testing.T) {
	for i, r := range ordered {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			table := slices.Delete(slices.Clone(ordered), i, i+1)
			for _, sc := range scenarios() {
				sc.start.budget = min(1, sc.start.budget)
				s := search{scenario: sc, table: table}
				if f := s.run(); f != nil {
					t.Logf("%s: %s", sc.name, f.What)
					return
				}
			}
			t.Errorf("nothing is lost without %q", r.name)
		})
	}
}
