package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// EventsToRegister returns the events that may make a rejected pod schedulable: those of the in-tree plugin, and the
// end of an assigned pod. If the scheduler gives up a pod before anything is written, its devices become free without
// an event of a claim.
func (p *Plugin) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	events, err := p.DynamicResources.EventsToRegister(ctx)
	if err != nil {
		return nil, err
	}
	return append(events, fwk.ClusterEventWithHint{
		Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.isSchedulableAfterRelease,
	}), nil
}

// isSchedulableAfterRelease is called for an assigned pod that is deleted, or that the scheduler assigned and gave up.
// A pod that the API server has bound holds only written allocations, whose release the events of its claims report.
func (p *Plugin) isSchedulableAfterRelease(_ klog.Logger, _ *corev1.Pod, before, _ any) (fwk.QueueingHint, error) {
	gone, ok := before.(*corev1.Pod)
	if ok && (isBound(gone) || len(gone.Spec.ResourceClaims) == 0 && len(p.shared.extended.Requested(gone)) == 0) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// isBound reports whether the API server has bound the pod.
func isBound(pod *corev1.Pod) bool {
	_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
	return scheduled != nil && scheduled.Status == corev1.ConditionTrue
}
