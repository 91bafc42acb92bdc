package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption"
	"github.com/tessera-gpu/tessera/scheduler-plugin/rank"
)

// Filter reports whether the node can serve the pod's claims. It is called for many nodes concurrently. For most of
// them it is a lookup.
func (p *Plugin) Filter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	defer p.cycles.Begin()()
	c := cycleOf(cs)
	if status := p.checkOutOfService(cs, c, info); status != nil {
		return status
	}
	if c == nil {
		return p.DynamicResources.Filter(ctx, cs, pod, info)
	}
	if status, ok := preemption.FilterDryRun(cs, info); ok {
		return status
	}
	v := p.evaluateNode(ctx, cs, c, info)
	c.record(info.Node().Name, v)
	return v.status
}

// evaluateNode returns the verdict on a node.
func (p *Plugin) evaluateNode(ctx context.Context, cs fwk.CycleState, c *cycle, info fwk.NodeInfo) *nodeVerdict {
	a, decided := p.answerOn(c, info)
	switch {
	case !decided:
		return p.delegateNode(ctx, cs, c, info)
	case a.TooComplex:
		return c.tooComplexVerdict()
	case a.Fits:
		return &nodeVerdict{score: a.Choice.Score, preference: alternativePreference(c, a.Choice)}
	}
	return &nodeVerdict{status: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, intree.ReasonCannotAllocate)}
}

// answerOn returns the answer of fit on the node, and false if the in-tree allocator decides there.
func (p *Plugin) answerOn(c *cycle, info fwk.NodeInfo) (rank.Answer, bool) {
	if c.order == nil || p.shared.extended.OfferedOn(info, c.extended) {
		return rank.Answer{}, false
	}
	a := c.order.OnNode(info.Node().Name, c.pod.UID)
	return a, a.Err == nil
}
