package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/rank"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// Reserve evaluates the node again, as it is now, and lets an in-tree instance allocate the chosen devices. The cycle
// state is then that of the in-tree plugin, which PreBind and Unreserve use. In a pod group, Reserve can be called
// again for the same attempt after Unreserve.
func (p *Plugin) Reserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	defer p.cycles.Begin()()
	c := cycleOf(cs)
	if c == nil {
		return p.DynamicResources.Reserve(ctx, cs, pod, node)
	}
	defer p.metrics.time(reserve)()
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reserve devices on %s: %w", node, err))
	}
	a, decided := p.answerOn(c, info)
	defer p.charge(c)
	if a.TooComplex {
		c.skipped.Add(1)
		return p.rejectTooComplex(c)
	}
	if decided && !a.Fits {
		p.metrics.misses.WithLabelValues(missChanged).Inc()
		p.retryNow(ctx, pod)
		return fwk.NewStatus(fwk.Unschedulable, "the node's devices changed after filtering, retrying")
	}
	limited, cancel := limitReserve(ctx, a, decided)
	defer cancel()
	scene := p.reserveScope(c, info, a, decided)
	status := p.allocate(limited, cs, c, info, scene)
	switch {
	case status.IsSuccess():
		p.sweeps.end(pod.UID)
		p.shared.throttle.Accept(c.digest)
	case limited.Err() != nil && ctx.Err() == nil:
		c.exceeded.Add(1)
		return p.rejectTooComplex(c)
	}
	if !decided {
		return status
	}
	if status.IsRejected() {
		return p.handleRejectedChoice(ctx, c, a, scene, status)
	}
	p.metrics.loss.Observe(fit.RelativeLoss(&a.Node.Fit, a.Choice))
	return status
}

// limitReserve returns the context of the in-tree allocator.
func limitReserve(ctx context.Context, a rank.Answer, decided bool) (context.Context, context.CancelFunc) {
	if decided && isReproducedSoon(a.Choice) {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, reserveLimit)
}

// soon is the number of ways that the in-tree allocator may try without a limit in time. Each takes some microseconds.
const soon = 1000

// isReproducedSoon reports whether the in-tree allocator, which sees the chosen devices only, has few ways to assign them to the requests: it tries the
// alternatives before the chosen one, and gives the devices of one request to another. The limit in time would reject such a pod for the load of the machine.
func isReproducedSoon(choice fit.Choice) bool {
	ways, devices := 1, 0
	for _, pick := range choice.Picks {
		if ways *= pick.Alternative + 1; ways > soon {
			return false
		}
		for i := range pick.Devices {
			// The number of sets of the devices so far that the request can have: a binomial coefficient.
			devices++
			if ways = ways * devices / (i + 1); ways > soon {
				return false
			}
		}
	}
	return true
}

// reserveScope returns what the in-tree instance sees: the chosen devices, or the whole node if the in-tree allocator decides.
func (p *Plugin) reserveScope(c *cycle, info fwk.NodeInfo, a rank.Answer, decided bool) intree.Scope {
	if !decided {
		return p.fullScope(p.nodeFor(c, info))
	}
	return intree.Scope{Slices: intree.PrunedSlices(a.Node, a.Choice), State: intree.NewState(a.Node.Held)}
}

// Unreserve gives the allocation up, as the in-tree plugin does.
func (p *Plugin) Unreserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) {
	p.shared.groups.Remove(pod)
	p.DynamicResources.Unreserve(ctx, cs, pod, node)
}

// allocate runs PreFilter, Filter and Reserve of an in-tree instance that sees the scope.
func (p *Plugin) allocate(ctx context.Context, cs fwk.CycleState, c *cycle, info fwk.NodeInfo, scene intree.Scope) *fwk.Status {
	return p.pool.With(c.key(), scene, func(i *intree.Instance) *fwk.Status {
		state := &intree.ScopedState{CycleState: cs}
		if status := p.runInTree(ctx, i, state, c, info); !status.IsSuccess() {
			return status
		}
		cs.Write(intree.StateKey, state.Data)
		status := i.Reserve(ctx, cs, c.pod, info.Node().Name)
		if status.IsSuccess() {
			p.shared.groups.Place(c.pod, info.Node().Name)
			p.preemptor.EndNomination(c.pod.UID)
		}
		return status
	})
}

// handleRejectedChoice is called when the in-tree allocator rejects the devices that fit chose, which means that one of
// them is wrong about the node. The next attempt delegates every decision to the in-tree plugin, so that a wrong choice
// is not repeated.
func (p *Plugin) handleRejectedChoice(ctx context.Context, c *cycle, a rank.Answer, scene intree.Scope, status *fwk.Status) *fwk.Status {
	p.metrics.refusals.Inc()
	attemptLogger(ctx, c, a.Node.Name).Error(status.AsError(), "The in-tree allocator rejected the chosen devices",
		"choice", a.Choice, "held", a.Node.Held, "slices", klog.Format(scene.Slices))
	p.hints.Set(c.pod.UID, requeue.InTreeOnly)
	p.retryNow(ctx, c.pod)
	return fwk.NewStatus(fwk.Unschedulable, append([]string{"the in-tree allocator rejected the chosen devices, retrying with its own choice"}, status.Reasons()...)...)
}

// retryNow moves the pod to the active queue, without waiting for an event.
func (p *Plugin) retryNow(ctx context.Context, pod *corev1.Pod) {
	p.handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{klog.KObj(pod).String(): pod})
}
