package index

import (
	"maps"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// Clique returns the NVLink clique of the node's GPUs, empty if they have none or are in different cliques.
func (n *Node) Clique() string {
	if len(n.Fit.GPUs) == 0 {
		return ""
	}
	name := n.Fit.GPUs[0].Clique
	for i := range n.Fit.GPUs {
		if n.Fit.GPUs[i].Clique != name {
			return ""
		}
	}
	return name
}

// Places returns how many disjoint sets of the given number of idle GPUs the node has. For 0 it returns 1 if all GPUs
// of the node are idle, otherwise 0.
func (n *Node) Places(gpus int) int { return n.load.places(gpus) }

func (l Load) places(gpus int) int {
	if gpus == 0 {
		gpus = max(l.GPUs, 1)
	}
	return l.Idle / gpus
}

// Cliques returns the NVLink cliques, sorted by name. Their free capacity is counted in sets of the given number of
// idle GPUs on one node (Node.Places). The cost depends on the number of cliques.
func (x *Index) Cliques(gpus int) []topology.Clique {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := make([]topology.Clique, 0, len(x.cliques))
	for _, name := range slices.Sorted(maps.Keys(x.cliques)) {
		list = append(list, topology.Clique{Name: name, Free: x.cliques[name].places(gpus)})
	}
	return list
}

// CliqueNodes returns the names of the clique's nodes, sorted. It is nil for an unknown clique.
func (x *Index) CliqueNodes(clique string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.cliques[clique]
	if c == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(c.nodes))
}

// cliques are the cliques of the cluster by name. A clique without nodes is removed.
type cliques map[string]*clique

// clique is one NVLink clique.
type clique struct {
	nodes map[string]bool
	// loads counts the nodes by their number of GPUs and number of idle GPUs.
	loads map[[2]int]int
}

// places returns the sum of Load.places of all nodes.
func (c *clique) places(gpus int) int {
	sum := 0
	for load, nodes := range c.loads {
		sum += nodes * Load{GPUs: load[0], Idle: load[1]}.places(gpus)
	}
	return sum
}

// replace replaces the node's contribution to the cliques. Nil means no node.
func (all cliques) replace(before, after *Node) {
	all.remove(before)
	all.add(after)
}

func (all cliques) add(n *Node) {
	if n == nil || n.Clique() == "" {
		return
	}
	c := all[n.Clique()]
	if c == nil {
		c = &clique{nodes: map[string]bool{}, loads: map[[2]int]int{}}
		all[n.Clique()] = c
	}
	c.nodes[n.Name] = true
	c.loads[[2]int{n.load.GPUs, n.load.Idle}]++
}

func (all cliques) remove(n *Node) {
	if n == nil || n.Clique() == "" {
		return
	}
	c := all[n.Clique()]
	delete(c.nodes, n.Name)
	load := [2]int{n.load.GPUs, n.load.Idle}
	if c.loads[load]--; c.loads[load] == 0 {
		delete(c.loads, load)
	}
	if len(c.nodes) == 0 {
		delete(all, n.Clique())
	}
}
