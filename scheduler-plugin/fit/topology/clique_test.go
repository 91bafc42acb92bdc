package topology_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

func TestCompareCliques(t *testing.T) {
	t.Parallel()
	full, broken, small := topology.Clique{Name: "full", Free: 18}, topology.Clique{Name: "broken", Free: 10}, topology.Clique{Name: "small", Free: 3}
	tests := map[string]struct {
		cliques []topology.Clique
		wanted  int
		want    []string
	}{
		"a pair goes where it breaks nothing": {[]topology.Clique{full, broken, small}, 2, []string{"small", "broken", "full"}},
		"one node":                            {[]topology.Clique{full, broken, small}, 1, []string{"small", "broken", "full"}},
		"a large group needs a whole one":     {[]topology.Clique{small, broken, full}, 12, []string{"full", "broken", "small"}},
		"the group stays together":            {[]topology.Clique{full, broken, {Name: "ours", Members: 2, Free: 1}}, 4, []string{"ours", "broken", "full"}},
		"nothing wanted is one":               {[]topology.Clique{{Name: "none"}, small}, 0, []string{"small", "none"}},
		"equal ones by name":                  {[]topology.Clique{{Name: "b", Free: 4}, {Name: "a", Free: 4}}, 2, []string{"a", "b"}},
		"equal ones without room, by name":    {[]topology.Clique{{Name: "b", Free: 4}, {Name: "a", Free: 4}}, 9, []string{"a", "b"}},
		"the exact fit":                       {[]topology.Clique{{Name: "five", Free: 5}, {Name: "four", Free: 4}}, 4, []string{"four", "five"}},
	}
	for name, test := range tests {
		slices.SortFunc(test.cliques, func(a, b topology.Clique) int { return a.Compare(b, test.wanted) })
		var got []string
		for _, c := range test.cliques {
			got = append(got, c.Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
