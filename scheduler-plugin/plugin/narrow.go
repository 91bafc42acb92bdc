package plugin

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// narrow returns the nodes to look at, all of them when nothing can be left out. Nodes that could serve
// the pod and are left out must be looked at when those that are not fail: the cycle remembers that there
// are such.
//
// A pod of a group is never narrowed: what PostFilter could do about a group that fails it does for the
// whole group.
func (p *Plugin) narrow(ctx context.Context, cs fwk.CycleState, c *cycle, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if c.order == nil || c.allNodes || cs.IsPodGroupSchedulingCycle() || p.offered(c.backed, nil) {
		return nil, nil
	}
	delegated := c.order.Delegated()
	nominated := p.nominated(c)
	if c.order.Count() == 0 && len(delegated) == 0 && nominated == "" {
		if p.preemptor.MayPreempt(c.pod) {
			return nil, nil // what else is missing must be known before somebody is evicted
		}
		return nil, p.refuse(c, nodes) //nolint:contextcheck // selectors are evaluated in memory
	}
	names := p.candidates(c, p.newNodeCheck(ctx, c.pod), delegated)
	if nominated != "" {
		names.Insert(nominated)
	}
	if len(names) == 0 {
		// Devices are not what is missing: the other plugins say what is, on every node.
		return nil, nil
	}
	c.narrowed = len(names) < c.order.Count()+len(delegated)
	return &fwk.PreFilterResult{NodeNames: names}, nil
}

// candidates returns the nodes of the group's clique, the best ones beside them, and then of those that fit
// does not decide the emptiest. The clique's are never left out, the others only make the number up.
func (p *Plugin) candidates(c *cycle, check *nodeCheck, delegated []string) sets.Set[string] {
	best := c.order.Best(p.args.Candidates, check.allows)
	if len(c.near) > 0 {
		best = slices.DeleteFunc(best, c.near.Has)
		best = append(c.near.UnsortedList(), best[:min(len(best), max(p.args.Candidates-len(c.near), 0))]...)
	}
	names := sets.New(best...)
	p.emptiest(delegated)
	for _, name := range delegated {
		if len(names) >= p.args.Candidates {
			break
		}
		if check.allows(name) {
			names.Insert(name)
		}
	}
	return names
}

// emptiest orders nodes that fit does not decide by how little of them is allocated: in a full cluster
// most others fail.
func (p *Plugin) emptiest(names []string) {
	held := make(map[string]int, len(names))
	for _, name := range names {
		if n, ok := p.shared.index.Node(name); ok {
			held[name] = len(n.Held)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(held[a], held[b]) })
}

// nominated returns the node that is kept for the pod, if it could serve the pod; empty if there is none.
func (p *Plugin) nominated(c *cycle) string {
	name := c.pod.Status.NominatedNodeName
	if name == "" {
		return ""
	}
	if a := c.order.On(name, c.pod.UID); !a.Fits && a.Err == nil {
		return ""
	}
	return name
}

// nodeCheck tells nodes that other plugins are going to refuse. It need not be exact: it only keeps the
// narrowed set from being filled with them.
type nodeCheck struct {
	logger     klog.Logger
	pod        *corev1.Pod
	nodes      fwk.NodeInfoLister
	affinity   nodeaffinity.RequiredNodeAffinity
	request    *framework.Resource
	comparison bool
	// tolerant pods may go where GPUs are out of service.
	tolerant bool
}

func (p *Plugin) newNodeCheck(ctx context.Context, pod *corev1.Pod) *nodeCheck {
	return &nodeCheck{
		logger:     klog.FromContext(ctx),
		pod:        pod,
		nodes:      p.handle.SnapshotSharedLister().NodeInfos(),
		affinity:   nodeaffinity.GetRequiredNodeAffinity(pod),
		request:    framework.NewResource(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})),
		comparison: p.features.EnableTaintTolerationComparisonOperators,
		tolerant:   p.tolerant(pod),
	}
}

// allows reports whether the node exists, is not closed to the pod, and has cpu, memory and a place left.
func (c *nodeCheck) allows(name string) bool {
	info, err := c.nodes.Get(name)
	if err != nil || info.Node() == nil {
		return false
	}
	return c.hasRoom(info) && c.isOpen(info.Node())
}

func (c *nodeCheck) hasRoom(info fwk.NodeInfo) bool {
	has, used := info.GetAllocatable(), info.GetRequested()
	return len(info.GetPods()) < has.GetAllowedPodNumber() &&
		c.request.MilliCPU <= has.GetMilliCPU()-used.GetMilliCPU() &&
		c.request.Memory <= has.GetMemory()-used.GetMemory()
}

func (c *nodeCheck) isOpen(node *corev1.Node) bool {
	if _, out := node.Labels[v1alpha1.LabelMaintenance]; out && !c.tolerant {
		return false
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append([]corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}, taints...)
	}
	repels := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	if _, repelled := corev1helpers.FindMatchingUntoleratedTaint(c.logger, taints, c.pod.Spec.Tolerations, repels, c.comparison); repelled {
		return false
	}
	matches, err := c.affinity.Match(node)
	return err == nil && matches
}
