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

// PostFilter is called when no node was found, before any other plugin's. If nodes were left out, the
// pod's next attempt looks at all of them, and nobody is evicted because of what a part of the cluster
// looked like.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if _, err := cs.Read(intree.StateKey); err != nil {
		// Another plugin refused the pod before claims were looked at.
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	c := cycleOf(cs)
	if c == nil {
		return p.removeLeftovers(ctx, cs, pod, statuses)
	}
	if c.narrowed {
		p.metrics.misses.WithLabelValues(missNarrowed).Inc()
		p.hints.Set(pod.UID, requeue.AllNodes)
		p.retryNow(ctx, pod)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("none of the %d best nodes will do, looking at all of them", p.args.Candidates))
	}
	result, status := p.deallocateClaims(ctx, c, pod, statuses)
	if !status.IsSuccess() && c.order != nil && p.preemptor.MayPreempt(pod) {
		return p.preemptor.Preempt(ctx, cs, pod)
	}
	return result, status
}

// removeLeftovers has the in-tree plugin give back or delete what an earlier attempt left behind. When that is a claim for
// extended resources that was created and never allocated, as after a crash, its end is no event for which
// the in-tree plugin tries the pod again: the pod would wait for minutes. An attempt that begins before the
// end is observed is told that the claim is not there, or has changed.
func (p *Plugin) removeLeftovers(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	result, status := p.DynamicResources.PostFilter(ctx, cs, pod, statuses)
	done := status.IsRejected() && len(status.Reasons()) > 0
	outdated := apierrors.IsNotFound(status.AsError()) || apierrors.IsConflict(status.AsError())
	if len(p.shared.extended.Requested(pod)) > 0 && (done || outdated) {
		p.retryNow(ctx, pod)
	}
	return result, status
}

// deallocateClaims has the in-tree plugin give back claims of the pod that are allocated where the pod cannot
// run. Each node that it was asked about has a state of its own.
func (p *Plugin) deallocateClaims(ctx context.Context, c *cycle, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	for _, v := range c.delegatedRefusals() {
		result, status := p.DynamicResources.PostFilter(ctx, v.state, pod, statuses)
		if !status.IsRejected() || len(status.Reasons()) > 0 {
			return result, status
		}
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}
