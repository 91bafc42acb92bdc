package plugin

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/rank"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// together returns the nodes that would have the pod in the NVLink clique of its group, or in the best one
// for the group as long as it has none; none where there are no cliques. They are nodes on which the pod may
// run as far as is known.
//
// Pods without a group pay nothing for it, others what the cliques and the nodes of one or two of them cost.
func (p *Plugin) together(ctx context.Context, c *cycle) sets.Set[string] {
	of, ok := groupOf(c.pod)
	if !ok {
		return nil
	}
	gpus, ok := c.wholeGPUs()
	if !ok {
		return nil
	}
	cliques := p.shared.index.Cliques(gpus)
	if len(cliques) == 0 {
		return nil
	}
	known, placed := p.shared.groups.members(of, c.pod.UID)
	p.countMembers(cliques, placed)
	wanted := max(known, p.groupSize(of, c.pod)) - len(placed)
	check := p.newNodeCheck(ctx, c.pod)
	looked := map[string][]string{}
	for len(cliques) > 0 {
		// What the index counts as free may be closed to the pod: the best clique is looked at until it is
		// one that was looked at.
		best := slices.MinFunc(cliques, func(a, b fit.Clique) int { return a.Compare(b, wanted) })
		if nodes, ok := looked[best.Name]; ok {
			return sets.New(nodes...)
		}
		at := slices.IndexFunc(cliques, func(q fit.Clique) bool { return q.Name == best.Name })
		nodes, free := p.open(c, check, best.Name, gpus)
		if len(nodes) == 0 {
			cliques = slices.Delete(cliques, at, at+1)
			continue
		}
		looked[best.Name], cliques[at].Free = nodes, free
	}
	return nil
}

// wholeGPUs returns how many whole GPUs the pod takes on the node that is best for it, and false when it
// takes none: parts of GPUs have no NVLink. No number stands for a whole node, where fit does not know.
func (c *cycle) wholeGPUs() (int, bool) {
	if c.order == nil {
		return 0, true
	}
	best := c.order.Best(1, func(string) bool { return true })
	if len(best) == 0 {
		return 0, true
	}
	a := c.order.On(best[0], c.pod.UID)
	gpus := 0
	for _, pick := range a.Choice.Picks {
		for _, device := range pick.Devices {
			if a.Node.Fit.Devices[device].Use.Shape == gpu.Whole {
				gpus++
			}
		}
	}
	return gpus, gpus > 0
}

// countMembers counts the nodes of the group's pods by clique.
func (p *Plugin) countMembers(cliques []fit.Clique, nodes []string) {
	for _, node := range nodes {
		n, ok := p.shared.index.Node(node)
		if !ok {
			continue
		}
		if at := slices.IndexFunc(cliques, func(q fit.Clique) bool { return q.Name == n.Clique() }); at >= 0 {
			cliques[at].Members++
		}
	}
}

// open returns the nodes of the clique on which the pod may run, and how many pods like it they have room
// for.
func (p *Plugin) open(c *cycle, check *nodeCheck, clique string, gpus int) (nodes []string, free int) {
	for _, name := range p.shared.index.CliqueNodes(clique) {
		a := p.lookUp(c, name)
		if serves := a.Fits || a.Err != nil && a.Node.Places(1) > 0; serves && check.allows(name) {
			nodes = append(nodes, name)
			free += a.Node.Places(gpus)
		}
	}
	return nodes, free
}

// lookUp returns what fit says about the node, or that it does not decide.
func (p *Plugin) lookUp(c *cycle, node string) rank.Answer {
	if c.order != nil {
		return c.order.On(node, c.pod.UID)
	}
	n, ok := p.shared.index.Node(node)
	if !ok {
		return rank.Answer{}
	}
	return rank.Answer{Node: n, Err: requirements.ErrDelegate}
}
