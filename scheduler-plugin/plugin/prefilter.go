package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// PreFilter checks the pod's claims as the in-tree plugin does, reads what they ask for, and narrows the
// nodes to the best ones. A pod that no node can serve is refused here, with reasons.
func (p *Plugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	cs.Delete(cycleKey)
	backed := p.shared.extended.Requested(pod)
	if len(pod.Spec.ResourceClaims) == 0 && len(backed) == 0 {
		return p.DynamicResources.PreFilter(ctx, cs, pod, nodes)
	}
	defer p.metrics.time(preFilter)()
	if err := p.shared.waitForSync(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	p.shared.startAttempt(pod)
	special, err := p.shared.extended.ExistingClaims(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	status := p.pool.With("", intree.Scope{Claims: special}, func(i *intree.Instance) *fwk.Status {
		_, status := i.PreFilter(ctx, cs, pod, nodes)
		return status
	})
	if !status.IsSuccess() {
		return nil, status
	}
	c, err := p.newCycle(ctx, pod, backed, special)
	switch {
	case err != nil:
		return nil, fwk.AsStatus(err)
	case c == nil:
		return nil, nil
	}
	c.preferred = p.preferredByGroup(ctx, c)
	cs.Write(cycleKey, c)
	return p.narrowNodes(ctx, cs, c, nodes)
}

// newCycle returns the state of an attempt, nil when the in-tree plugin needs no lead: nothing is to be
// allocated, or what an earlier attempt left behind must be cleared away first. The in-tree plugin has
// checked the pod's claims before.
func (p *Plugin) newCycle(ctx context.Context, pod *corev1.Pod, backed []corev1.ResourceName, special []*resourceapi.ResourceClaim) (*cycle, error) {
	of, err := p.podClaimsOf(pod)
	if err != nil {
		return nil, err
	}
	if len(special) > 0 || len(of.pending) == 0 && len(backed) == 0 {
		return nil, nil
	}
	c := &cycle{pod: pod, extended: backed, existingClaims: special, verdicts: map[string]*nodeVerdict{}}
	hint := p.hints.Take(pod.UID)
	c.allNodes = hint == requeue.AllNodes
	switch {
	case hint == requeue.InTreeOnly:
		c.delegateReason = refused
	case of.sharing:
		c.delegateReason = sharing
	case of.allocated > 0:
		c.delegateReason = partly
	default:
		p.readRequirements(ctx, c, of.pending)
	}
	if c.order == nil {
		p.metrics.delegated(c.delegateReason)
	}
	return c, nil
}

// readRequirements reads the demand of the claims into the cycle.
func (p *Plugin) readRequirements(ctx context.Context, c *cycle, pending []*resourceapi.ResourceClaim) {
	c.delegateReason = undecided
	if len(c.extended) > 0 {
		claim, err := p.shared.extended.ClaimFor(c.pod, c.extended)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("Extended resources are left to the in-tree allocator", "pod", klog.KObj(c.pod), "err", err)
			return
		}
		pending = append(pending, claim)
	}
	for _, claim := range pending {
		if len(claim.Spec.Devices.Requests) == 0 {
			return
		}
		for _, request := range claim.Spec.Devices.Requests {
			c.alternatives = append(c.alternatives, len(request.FirstAvailable) > 0)
		}
	}
	d, err := p.shared.reader.Read(pending) //nolint:contextcheck // selectors are evaluated in memory
	if err != nil {
		// Whatever is wrong with the claims the in-tree plugin says it.
		klog.FromContext(ctx).V(4).Info("Claims are left to the in-tree allocator", "pod", klog.KObj(c.pod), "err", err)
		return
	}
	c.requirements, c.order = d, p.shared.rank.Order(d)
}
