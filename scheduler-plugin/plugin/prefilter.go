package plugin

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// PreFilter checks the pod's claims as the in-tree plugin does, reads their requirements, and narrows the nodes to the
// best candidates. A pod that no node can serve is rejected here, with the reasons of some nodes.
func (p *Plugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	defer p.cycles.Begin()()
	cs.Delete(cycleKey)
	cs.Delete(claimsKey)
	resources := p.shared.extended.Requested(pod)
	if len(pod.Spec.ResourceClaims) == 0 && len(resources) == 0 {
		return p.DynamicResources.PreFilter(ctx, cs, pod, nodes)
	}
	defer p.metrics.time(preFilter)()
	if err := p.shared.waitForSync(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	// Before anything is read from the index, see Requeuer.
	p.shared.startAttempt(pod)
	existing, err := p.shared.extended.ExistingClaims(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	status := p.pool.With("", intree.Scope{Claims: existing}, func(i *intree.Instance) *fwk.Status {
		_, status := i.PreFilter(ctx, cs, pod, nodes)
		return status
	})
	if !status.IsSuccess() {
		return nil, status
	}
	of, err := p.podClaimsOf(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	cs.Write(claimsKey, of)
	if len(existing) > 0 || len(of.pending) == 0 && len(resources) == 0 {
		// Claims of an earlier attempt must be removed first, or nothing is to be allocated: the in-tree plugin decides.
		return p.leaveToInTree(ctx, cs, pod, nodes)
	}
	return p.preFilterPending(ctx, cs, pod, nodes, of, resources)
}

// preFilterPending is PreFilter of a pod for which devices are to be allocated.
func (p *Plugin) preFilterPending(
	ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo, of *podClaims, resources []corev1.ResourceName,
) (*fwk.PreFilterResult, *fwk.Status) {
	digest := sync.OnceValue(func() string { return p.digestOf(pod, of.pending, resources) })
	part, wait := p.shared.throttle.Admit(p.isLarge(of.pending), digest)
	if wait > 0 {
		return nil, p.rejectUntil(pod, wait)
	}
	c := p.newCycle(ctx, pod, of, resources, part)
	c.digest = digest
	defer p.charge(c)
	if c.tooComplex.Load() {
		return nil, p.rejectTooComplex(c)
	}
	if p.isForInTree(c) {
		return p.leaveToInTree(ctx, cs, pod, nodes)
	}
	c.preferred = p.preferredByGroup(ctx, c)
	cs.Write(cycleKey, c)
	return p.narrowNodes(ctx, cs, c, nodes)
}

// newCycle returns the state of an attempt in which devices are to be allocated, and which may take a part of the limits.
func (p *Plugin) newCycle(ctx context.Context, pod *corev1.Pod, of *podClaims, resources []corev1.ResourceName, part float64) *cycle {
	c := &cycle{
		pod: pod, extended: resources, verdicts: map[string]*nodeVerdict{},
		budget: newBudget(part), delegation: newDelegation(max(minimumDelegation, partOf(delegationLimit, part))),
		sweep: p.sweeps.continued(pod.UID),
	}
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
	if c.order == nil && !c.tooComplex.Load() {
		p.metrics.delegated(c.delegateReason)
	}
	return c
}

// readRequirements sets the requirements and the order of nodes of the cycle, or the reason why the in-tree allocator
// decides, or that reading them is too complex. Errors are not reported: the in-tree plugin reports what is wrong with a claim.
func (p *Plugin) readRequirements(ctx context.Context, c *cycle, pending []*resourceapi.ResourceClaim) {
	c.delegateReason = undecided
	if len(c.extended) > 0 {
		claim, err := p.shared.extended.ClaimFor(c.pod, c.extended)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("Extended resources are delegated to the in-tree allocator", "pod", klog.KObj(c.pod), "err", err)
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
	read, err := p.shared.reader.Read(pending, c.budget) //nolint:contextcheck // selectors are evaluated in memory
	switch {
	case errors.Is(err, fit.ErrTooComplex):
		c.tooComplex.Store(true)
		return
	case err != nil:
		klog.FromContext(ctx).V(4).Info("Claims are delegated to the in-tree allocator", "pod", klog.KObj(c.pod), "err", err)
		return
	}
	c.requirements, c.order = read, p.shared.rank.Order(read, c.budget)
}
