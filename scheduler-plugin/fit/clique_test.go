package fit_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

func TestCliques(t *testing.T) {
	t.Parallel()
	full, broken, small := fit.Clique{Name: "full", Free: 18}, fit.Clique{Name: "broken", Free: 10}, fit.Clique{Name: "small", Free: 3}
	tests := map[string]struct {
		cliques []fit.Clique
		wanted  int
		want    []string
	}{
		"a pair goes where it breaks nothing": {[]fit.Clique{full, broken, small}, 2, []string{"small", "broken", "full"}},
		"one node":                            {[]fit.Clique{full, broken, small}, 1, []string{"small", "broken", "full"}},
		"a large group needs a whole one":     {[]fit.Clique{small, broken, full}, 12, []string{"full", "broken", "small"}},
		"the group stays together":            {[]fit.Clique{full, broken, {Name: "ours", Members: 2, Free: 1}}, 4, []string{"ours", "broken", "full"}},
		"nothing wanted is one":               {[]fit.Clique{{Name: "none"}, small}, 0, []string{"small", "none"}},
		"equal ones by name":                  {[]fit.Clique{{Name: "b", Free: 4}, {Name: "a", Free: 4}}, 2, []string{"a", "b"}},
		"equal ones without room, by name":    {[]fit.Clique{{Name: "b", Free: 4}, {Name: "a", Free: 4}}, 9, []string{"a", "b"}},
		"the exact fit":                       {[]fit.Clique{{Name: "five", Free: 5}, {Name: "four", Free: 4}}, 4, []string{"four", "five"}},
	}
	for name, test := range tests {
		slices.SortFunc(test.cliques, func(a, b fit.Clique) int { return a.Compare(b, test.wanted) })
		var got []string
		for _, c := range test.cliques {
			got = append(got, c.Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
