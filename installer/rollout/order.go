package rollout

import (
	"cmp"
	"slices"
)

// order returns nodes in the order in which they change: nodes without a failed attempt first; the nodes of a clique consecutively, a started clique
// before others; fewest pods first.
func order(nodes []*Node) []*Node {
	type clique struct {
		begun bool
		pods  int32
		name  string
	}
	cliques := map[string]clique{}
	key := func(n *Node) string {
		if n.Clique == "" {
			return "node/" + n.Name
		}
		return "clique/" + n.Clique
	}
	for _, n := range nodes {
		c, known := cliques[key(n)]
		if !known || n.Name < c.name {
			c.name = n.Name
		}
		c.pods += n.Pods
		c.begun = c.begun || n.Clique != "" && (n.running() || n.done())
		cliques[key(n)] = c
	}
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b *Node) int {
		x, y := cliques[key(a)], cliques[key(b)]
		return cmp.Or(
			later(a.attempt() != nil, b.attempt() != nil), later(!x.begun, !y.begun), cmp.Compare(x.pods, y.pods), cmp.Compare(x.name, y.name),
			cmp.Compare(key(a), key(b)), cmp.Compare(a.Pods, b.Pods), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// later orders false before true.
func later(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}
