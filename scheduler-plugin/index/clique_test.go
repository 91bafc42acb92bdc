package index_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// TestCliques follows two cliques of two nodes each, and a node without a clique.
func TestCliques(t *testing.T) {
	t.Parallel()
	x := newIndex()
	check := func(when string, gpus int, want ...topology.Clique) {
		t.Helper()
		if diff := cmp.Diff(want, x.Cliques(gpus)); diff != "" {
			t.Errorf("%s, places of %d GPUs (-want +got):\n%s", when, gpus, diff)
		}
	}
	check("before anything is published", 1, []topology.Clique{}...)
	set(x, publish(t, machine(t, "h100x2", "other"), 1, 1))
	for i := range 4 {
		n := machine(t, "gb200x4", fmt.Sprintf("n%d", i))
		for j := range n.GPUs {
			n.GPUs[j].Clique = fmt.Sprintf("fabric.%d", i/2)
		}
		set(x, publish(t, n, 1, 1))
	}
	check("empty", 1, topology.Clique{Name: "fabric.0", Free: 8}, topology.Clique{Name: "fabric.1", Free: 8})
	check("empty", 0, topology.Clique{Name: "fabric.0", Free: 2}, topology.Clique{Name: "fabric.1", Free: 2})

	n := machine(t, "gb200x4", "n2")
	claim := claimOf("c", 1, result("n2", whole(n, 0)))
	x.SetClaim(claim)
	check("one GPU in use", 4, topology.Clique{Name: "fabric.0", Free: 2}, topology.Clique{Name: "fabric.1", Free: 1})
	check("one GPU in use", 2, topology.Clique{Name: "fabric.0", Free: 4}, topology.Clique{Name: "fabric.1", Free: 3})
	x.DeleteClaim(claim)
	check("free again", 0, topology.Clique{Name: "fabric.0", Free: 2}, topology.Clique{Name: "fabric.1", Free: 2})

	if diff := cmp.Diff([]string{"n2", "n3"}, x.CliqueNodes("fabric.1")); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	for _, s := range append(publish(t, machine(t, "gb200x4", "n0"), 1, 1), publish(t, machine(t, "gb200x4", "n1"), 1, 1)...) {
		x.DeleteSlice(s)
	}
	check("a clique went", 0, topology.Clique{Name: "fabric.1", Free: 2})
	if got := x.CliqueNodes("fabric.0"); got != nil {
		t.Errorf("the clique that went has nodes %v", got)
	}
}

// TestCliqueOfANode covers nodes whose GPUs differ.
func TestCliqueOfANode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cliques []string
		want    string
	}{
		"no GPU":                {nil, ""},
		"none":                  {[]string{"", ""}, ""},
		"one":                   {[]string{"a", "a"}, "a"},
		"two":                   {[]string{"a", "b"}, ""},
		"not all have one":      {[]string{"a", ""}, ""},
		"not all, the last one": {[]string{"", "a"}, ""},
	}
	for name, test := range tests {
		var n index.Node
		for _, clique := range test.cliques {
			n.Fit.GPUs = append(n.Fit.GPUs, fit.GPU{Clique: clique})
		}
		if got := n.Clique(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
