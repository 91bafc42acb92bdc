package plugin

import (
	"context"
	"slices"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
)

// delegateNode lets an in-tree instance evaluate the pod on the node, with the node's devices in order of cost: the
// in-tree allocator takes the first ones that fit. Reserve is simulated to get the score of the devices that it takes.
//
// The time for all nodes of an attempt is limited. Nodes that fit are used, although others are not evaluated.
func (p *Plugin) delegateNode(ctx context.Context, cs fwk.CycleState, c *cycle, info fwk.NodeInfo) *nodeVerdict {
	if c.order != nil {
		p.metrics.delegated(unclear)
	}
	n := p.nodeFor(c, info)
	if swept, ok := c.sweep.result(n.Name, n.Revision); ok {
		return c.sweptVerdict(swept)
	}
	limited, end, ok := c.delegation.start(ctx)
	if !ok {
		c.skipped.Add(1)
		return c.tooComplexVerdict()
	}
	v := p.runDelegated(limited, cs, c, info, n)
	timeout := !v.status.IsSuccess() && limited.Err() != nil && ctx.Err() == nil
	most := end()
	switch {
	case timeout && most:
		swept := sweptNode{revision: n.Revision, tooComplex: true}
		c.sweep.record(n.Name, swept)
		return c.sweptVerdict(swept)
	case timeout:
		c.skipped.Add(1)
		return c.tooComplexVerdict()
	case v.status.IsRejected():
		c.sweep.record(n.Name, sweptNode{revision: n.Revision})
	}
	return v
}

// sweptVerdict returns the verdict on a node that an earlier attempt evaluated.
func (c *cycle) sweptVerdict(swept sweptNode) *nodeVerdict {
	if swept.tooComplex {
		c.exceeded.Add(1)
		return c.tooComplexVerdict()
	}
	return &nodeVerdict{status: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, intree.ReasonCannotAllocate)}
}

// runDelegated evaluates the node with an in-tree instance. ctx ends with the time of the attempt.
func (p *Plugin) runDelegated(ctx context.Context, cs fwk.CycleState, c *cycle, info fwk.NodeInfo, n *index.Node) *nodeVerdict {
	capture := &intree.Capture{}
	scene := p.fullScope(n)
	scene.Capture = capture
	v := &nodeVerdict{state: &intree.ScopedState{CycleState: cs}}
	v.status = p.pool.With(c.key(), scene, func(i *intree.Instance) *fwk.Status {
		if status := p.runInTree(ctx, i, v.state, c, info); !status.IsSuccess() {
			return status
		}
		var status *fwk.Status
		if v.preference, status = i.Score(ctx, v.state, c.pod, info); !status.IsSuccess() {
			return status
		}
		return i.Reserve(ctx, intree.WithoutPodGroup{ScopedState: v.state}, c.pod, info.Node().Name)
	})
	if v.status.IsSuccess() {
		v.score = capture.Score(n)
	}
	return v
}

// runInTree runs PreFilter and Filter of the instance for the pod on the node.
func (p *Plugin) runInTree(ctx context.Context, i *intree.Instance, state fwk.CycleState, c *cycle, info fwk.NodeInfo) *fwk.Status {
	if status := p.runPreFilter(ctx, i, state, c); !status.IsSuccess() {
		return status
	}
	return i.Filter(ctx, state, c.pod, info)
}

// runPreFilter runs PreFilter of the instance. It writes to the state of the pod group, if there is one, which is
// serialized.
func (p *Plugin) runPreFilter(ctx context.Context, i *intree.Instance, state fwk.CycleState, c *cycle) *fwk.Status {
	if state.GetPodGroupSchedulingCycle() != nil {
		c.group.Lock()
		defer c.group.Unlock()
	}
	_, status := i.PreFilter(ctx, state, c.pod, nil)
	return status
}

// nodeFor returns the node as the pod sees it, without devices if the index does not have it.
func (p *Plugin) nodeFor(c *cycle, info fwk.NodeInfo) *index.Node {
	n, ok := p.shared.index.Node(info.Node().Name)
	if !ok {
		return &index.Node{Name: info.Node().Name}
	}
	return n.ForPod(c.pod.UID)
}

// fullScope returns the scope with the whole node, and devices that are not local to a node.
func (p *Plugin) fullScope(n *index.Node) intree.Scope {
	return intree.Scope{
		Slices: p.withoutMapped(slices.Concat(intree.OrderedSlices(n, fit.DevicesByCost(&n.Fit)), p.shared.index.NonLocalSlices())),
		State:  intree.NewState(slices.Concat(n.Held, p.shared.index.NonLocalHeld())),
	}
}

// attemptLogger returns the logger for an attempt on a node.
func attemptLogger(ctx context.Context, c *cycle, node string) klog.Logger {
	return klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(c.pod), "node", node)
}
