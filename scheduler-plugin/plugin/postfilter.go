package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// PostFilter is called when no node fits. If the candidates were narrowed, the pod is retried with all nodes at once,
// and no pod is evicted because of what a part of the cluster looked like. Otherwise claims are deallocated as the
// in-tree plugin does, or pods are preempted.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	defer p.cycles.Begin()()
	if _, err := cs.Read(intree.StateKey); err != nil {
		// Another plugin rejected the pod before PreFilter of this one.
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	c := cycleOf(cs)
	if c == nil {
		return p.removeLeftovers(ctx, cs, pod, statuses)
	}
	if c.tooComplex.Load() {
		// No pod is evicted because of nodes without a result.
		p.charge(c)
		return nil, p.rejectTooComplex(c)
	}
	p.charge(c)
	p.sweeps.end(pod.UID)
	if c.narrowed {
		p.metrics.misses.WithLabelValues(missNarrowed).Inc()
		p.hints.Set(pod.UID, requeue.AllNodes)
		p.retryNow(ctx, pod)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("none of the %d best nodes fits, retrying with all nodes", p.args.Candidates))
	}
	result, status := p.deallocateClaims(ctx, c, pod, statuses)
	if !status.IsSuccess() && c.order != nil && p.preemptor.MayPreempt(pod) {
		return p.preemptor.Preempt(ctx, cs, pod)
	}
	return result, status
}

// removeLeftovers lets the in-tree plugin deallocate or delete the claims of an earlier attempt.
//
// If the scheduler crashed, a claim for extended resources may exist that was never allocated. No queueing hint of the
// in-tree plugin covers its deletion, so the pod is activated here. An attempt that starts before the informer receives
// the deletion gets a not-found or a conflict error, and activates the pod again.
func (p *Plugin) removeLeftovers(
	ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	result, status := p.DynamicResources.PostFilter(ctx, cs, pod, statuses)
	done := status.IsRejected() && len(status.Reasons()) > 0
	outdated := apierrors.IsNotFound(status.AsError()) || apierrors.IsConflict(status.AsError())
	if len(p.shared.extended.Requested(pod)) > 0 && (done || outdated) {
		p.retryNow(ctx, pod)
	}
	return result, status
}

// deallocateClaims lets the in-tree plugin deallocate claims of the pod that are allocated where the pod cannot run.
// Each delegated node has a separate state.
func (p *Plugin) deallocateClaims(ctx context.Context, c *cycle, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	for _, v := range c.delegatedRefusals() {
		result, status := p.DynamicResources.PostFilter(ctx, v.state, pod, statuses)
		if !status.IsRejected() || len(status.Reasons()) > 0 {
			return result, status
		}
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}
