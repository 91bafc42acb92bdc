package plugin

import (
	"cmp"
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/nodecheck"
	"github.com/tessera-gpu/tessera/scheduler-plugin/podgroup"
)

// narrowNodes returns the candidates of the attempt, or no result if all nodes are candidates. It rejects the pod if no
// node can serve it. Nodes that might serve the pod and are not candidates are considered by the next attempt if no
// candidate fits (cycle.narrowed).
//
// Pods of a pod group are never narrowed: PodGroupPostFilter acts for the whole group, on all nodes.
func (p *Plugin) narrowNodes(ctx context.Context, cs fwk.CycleState, c *cycle, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if c.order == nil || c.allNodes || cs.IsPodGroupSchedulingCycle() || p.shared.extended.OfferedAnywhere(c.extended) {
		return nil, nil
	}
	delegated := c.order.Delegated()
	nominated := p.nominatedNode(c)
	if c.order.Count() == 0 && len(delegated) == 0 && nominated == "" {
		if over, pending := c.order.Unevaluated(); over+pending > 0 {
			return nil, p.rejectTooComplex(c)
		}
		if p.preemptor.MayPreempt(c.pod) {
			return nil, nil // pods may be evicted only if every other filter accepts the node
		}
		return nil, p.rejectPod(c, nodes) //nolint:contextcheck // selectors are evaluated in memory
	}
	names := p.candidateNodes(c, p.newNodeCheck(ctx, c.pod), delegated)
	if nominated != "" {
		names.Insert(nominated)
	}
	if len(names) == 0 {
		// Every node with devices is closed or full. The other plugins report why, on all nodes.
		return nil, nil
	}
	c.narrowed = len(names) < c.order.Count()+len(delegated)
	return &fwk.PreFilterResult{NodeNames: names}, nil
}

// candidateNodes returns the names of the candidates: all nodes of the clique of the pod's group, then the best nodes,
// then delegated nodes with the fewest allocated devices, up to the configured number.
func (p *Plugin) candidateNodes(c *cycle, check *nodecheck.Check, delegated []string) sets.Set[string] {
	best := c.order.Best(p.args.Candidates, check.Allows)
	if len(c.preferred) > 0 {
		best = slices.DeleteFunc(best, c.preferred.Has)
		best = append(c.preferred.UnsortedList(), best[:min(len(best), max(p.args.Candidates-len(c.preferred), 0))]...)
	}
	names := sets.New(best...)
	p.sortByAllocated(delegated)
	for _, name := range delegated {
		if len(names) >= p.args.Candidates {
			break
		}
		if check.Allows(name) {
			names.Insert(name)
		}
	}
	return names
}

// sortByAllocated sorts the nodes by the number of allocated devices: in a full cluster most others fail.
func (p *Plugin) sortByAllocated(names []string) {
	held := make(map[string]int, len(names))
	for _, name := range names {
		if n, ok := p.shared.index.Node(name); ok {
			held[name] = len(n.Held)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(held[a], held[b]) })
}

// nominatedNode returns the pod's nominated node if it could serve the pod, and the empty string otherwise.
func (p *Plugin) nominatedNode(c *cycle) string {
	name := c.pod.Status.NominatedNodeName
	if name == "" {
		return ""
	}
	if a := c.order.OnNode(name, c.pod.UID); !a.Fits && a.Err == nil {
		return ""
	}
	return name
}

// newNodeCheck returns a check of nodes for the pod.
func (p *Plugin) newNodeCheck(ctx context.Context, pod *corev1.Pod) *nodecheck.Check {
	return nodecheck.New(ctx, pod, nodecheck.Config{
		Nodes:                p.handle.SnapshotSharedLister().NodeInfos(),
		ComparisonOperators:  p.features.EnableTaintTolerationComparisonOperators,
		ToleratesMaintenance: p.podToleratesMaintenance(pod),
	})
}

// preferredByGroup returns the nodes that put the pod into the NVLink clique of its group.
func (p *Plugin) preferredByGroup(ctx context.Context, c *cycle) sets.Set[string] {
	check := sync.OnceValue(func() *nodecheck.Check { return p.newNodeCheck(ctx, c.pod) })
	return podgroup.PreferredNodes(podgroup.Attempt{
		Pod: c.pod, Order: c.order, Index: p.shared.index, Tracker: p.shared.groups,
		PodGroups: p.handle.SnapshotSharedLister().PodGroups(),
		Allows:    func(node string) bool { return check().Allows(node) },
	})
}
