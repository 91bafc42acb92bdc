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

// ask has the in-tree plugin try the pod on the node, with the node's devices in order of preference.
func (p *Plugin) ask(ctx context.Context, cs fwk.CycleState, c *cycle, info fwk.NodeInfo) *verdict {
	if c.order != nil {
		p.metrics.delegated(unclear)
	}
	n := p.node(c, info)
	capture := &intree.Capture{}
	scene := p.whole(c, n)
	scene.Capture = capture
	v := &verdict{state: &intree.ScopedState{CycleState: cs}}
	v.status = p.pool.With(c.key(), scene, func(i *intree.Instance) *fwk.Status {
		if status := p.run(ctx, i, v.state, c, info); !status.IsSuccess() {
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

// run has the instance prefilter and filter the pod on the node.
func (p *Plugin) run(ctx context.Context, i *intree.Instance, state fwk.CycleState, c *cycle, info fwk.NodeInfo) *fwk.Status {
	if status := p.prefilter(ctx, i, state, c); !status.IsSuccess() {
		return status
	}
	return i.Filter(ctx, state, c.pod, info)
}

// prefilter runs the in-tree PreFilter, which writes to the state of the pod group, if there is one: one
// at a time then.
func (p *Plugin) prefilter(ctx context.Context, i *intree.Instance, state fwk.CycleState, c *cycle) *fwk.Status {
	if state.GetPodGroupSchedulingCycle() != nil {
		c.group.Lock()
		defer c.group.Unlock()
	}
	_, status := i.PreFilter(ctx, state, c.pod, nil)
	return status
}

// node returns what the index has of the node, as the pod may see it; a node without devices when it has
// nothing.
func (p *Plugin) node(c *cycle, info fwk.NodeInfo) *index.Node {
	n, ok := p.shared.index.Node(info.Node().Name)
	if !ok {
		return &index.Node{Name: info.Node().Name}
	}
	return n.For(c.pod.UID)
}

// whole returns the node as it is, with devices that roam.
func (p *Plugin) whole(c *cycle, n *index.Node) intree.Scene {
	return intree.Scene{
		Slices: slices.Concat(intree.Ordered(n, fit.DevicesByCost(&n.Fit)), p.shared.index.Roaming()),
		State:  intree.NewState(slices.Concat(n.Held, p.shared.index.RoamingHeld())),
		Claims: c.special,
	}
}

// logger returns the logger of an attempt on a node.
func logger(ctx context.Context, c *cycle, node string) klog.Logger {
	return klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(c.pod), "node", node)
}
