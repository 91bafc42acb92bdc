package expect

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func podPhase(pod *corev1.Pod) Phase {
	running := len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
	for _, status := range pod.Status.ContainerStatuses {
		running = running && (status.State.Running != nil || status.State.Terminated != nil)
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return Succeeded
	case pod.Status.Phase == corev1.PodFailed:
		return Failed
	case pod.Status.Phase == corev1.PodRunning && running:
		return Running
	}
	return Pending
}

func jobPhase(job *batchv1.Job, pods []*corev1.Pod) Phase {
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		if condition.Type == batchv1.JobComplete {
			return Succeeded
		}
		if condition.Type == batchv1.JobFailed {
			return Failed
		}
	}
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return podPhase(p) != Pending }) {
		return Running
	}
	return Pending
}

func deploymentPhase(d *appsv1.Deployment) Phase {
	status, replicas := d.Status, ptr.Deref(d.Spec.Replicas, 1)
	if status.ObservedGeneration == d.Generation && status.UpdatedReplicas == replicas && status.AvailableReplicas == replicas && status.Replicas == replicas {
		return Running
	}
	for _, condition := range status.Conditions {
		if condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse {
			return Failed
		}
	}
	return Pending
}

// times returns when the first container of the pod began and, if all have ended, when the last one did.
func times(pod *corev1.Pod) (began, ended time.Time) {
	all := len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
	for _, status := range pod.Status.ContainerStatuses {
		var start metav1.Time
		switch state := status.State; {
		case state.Running != nil:
			start, all = state.Running.StartedAt, false
		case state.Terminated != nil:
			start = state.Terminated.StartedAt
			ended = latest(ended, state.Terminated.FinishedAt.Time)
		default:
			all = false
		}
		if began.IsZero() || start.Time.Before(began) {
			began = start.Time
		}
	}
	if !all {
		ended = time.Time{}
	}
	return began, ended
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
