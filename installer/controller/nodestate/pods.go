package nodestate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// OperandPod returns the pod of an operand as input of the phase table. Of several it is the one that has progressed furthest; of two equal ones the
// newer, because of two agents that overlap the newer one takes over.
func OperandPod(pods []corev1.Pod, name string) phase.Pod {
	var found phase.Pod
	for i := range pods {
		if pods[i].Labels[render.LabelName] != name {
			continue
		}
		seen := ObservePod(&pods[i])
		ahead := podProgress(seen.State) - podProgress(found.State)
		if found.State == phase.PodAbsent || ahead > 0 || ahead == 0 && seen.Since.After(found.Since) {
			found = seen
		}
	}
	return found
}

// podProgress returns the position of a state in the progress of a pod.
func podProgress(state phase.PodState) int {
	return slices.Index([]phase.PodState{
		phase.PodAbsent, phase.PodTerminating, phase.PodSucceeded, phase.PodFailed, phase.PodPending, phase.PodStarting, phase.PodReady,
	}, state)
}

// ObservePod returns a pod as input of the phase table: its state, and why it is not ready. Reason and message stay the same while a container fails
// repeatedly in the same way.
func ObservePod(pod *corev1.Pod) phase.Pod {
	seen := phase.Pod{
		Name: pod.Name, UID: string(pod.UID), Digest: pod.Annotations[render.AnnotationDigest], Since: readySince(pod),
		Barrier: pod.Annotations[action.AnnotationBarrier],
		Reason:  pod.Status.Reason, Message: pod.Status.Message,
	}
	if seen.State = podState(pod); slices.Contains([]phase.PodState{phase.PodTerminating, phase.PodSucceeded, phase.PodReady}, seen.State) {
		return seen
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if reason, message, fails := containerProblem(pod, status); fails {
			seen.State, seen.Reason, seen.Message = phase.PodFailed, reason, message
			return seen
		} else if seen.Reason == "" && reason != "" {
			seen.Reason, seen.Message = reason, message
		}
	}
	if c := scheduledCondition(pod); seen.Reason == "" && c != nil && c.Status == corev1.ConditionFalse {
		seen.Reason, seen.Message = c.Reason, c.Message
	}
	return seen
}

// ObserveValidationPod returns a pod of a validation as input of the phase table. The message of one that succeeded is its termination message: what it
// could not test.
func ObserveValidationPod(pod *corev1.Pod) phase.Pod {
	seen := ObservePod(pod)
	if seen.State != phase.PodSucceeded {
		return seen
	}
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			seen.Message = strings.TrimSpace(ended.Message)
		}
	}
	return seen
}

// readySince returns since when a pod is ready or not ready: the later of its creation and the last change of its condition Ready, so that a reboot
// starts it again.
func readySince(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// podState returns the state of a pod without regard to failing containers.
func podState(pod *corev1.Pod) phase.PodState {
	switch {
	case pod.DeletionTimestamp != nil:
		return phase.PodTerminating
	case pod.Status.Phase == corev1.PodSucceeded:
		return phase.PodSucceeded
	case pod.Status.Phase == corev1.PodFailed:
		return phase.PodFailed
	case isPodReady(pod):
		return phase.PodReady
	case pod.Status.Phase == corev1.PodRunning:
		return phase.PodStarting
	default:
		return phase.PodPending
	}
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func scheduledCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// manyRestarts is the number of restarts from which on a container with an error counts as failed, also while it runs.
const manyRestarts = 3

// containerProblem returns why a container is not ready, and whether its pod counts as failed.
func containerProblem(pod *corev1.Pod, status corev1.ContainerStatus) (reason, message string, fails bool) {
	if status.Ready {
		return "", "", false
	}
	ended := status.State.Terminated
	if ended == nil {
		ended = status.LastTerminationState.Terminated
	}
	if ended != nil && ended.ExitCode != 0 {
		reason, message, verb := exitProblem(status.Name, ended)
		again := status.RestartCount >= manyRestarts || isWaitingFor(status, "CrashLoopBackOff") || pod.Spec.RestartPolicy == corev1.RestartPolicyNever
		return reason, message, verb || again
	}
	waiting := status.State.Waiting
	if waiting == nil {
		return "", "", false
	}
	switch waiting.Reason {
	case "ImagePullBackOff", "ErrImagePull":
		reason, message = pullProblem(status.Image, pod.Name, waiting.Message)
		return reason, message, true
	case "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return waiting.Reason, waiting.Message, true
	}
	return "", "", false
}

func isWaitingFor(status corev1.ContainerStatus, reason string) bool {
	return status.State.Waiting != nil && status.State.Waiting.Reason == reason
}

// exitProblem returns why a container ended with an error. verb is whether it is a host verb, which writes its result as its termination message.
func exitProblem(container string, ended *corev1.ContainerStateTerminated) (reason, message string, verb bool) {
	var result host.Result
	text := strings.TrimSpace(ended.Message)
	if err := json.Unmarshal([]byte(text), &result); err == nil && result.Verb != "" && !result.Done {
		return result.Reason, result.Message, true
	}
	reason = ended.Reason
	if reason == "" {
		reason = "Error"
	}
	message = fmt.Sprintf("container %s exited with code %d", container, ended.ExitCode)
	if text != "" {
		message += ": " + lastLine(text)
	}
	if known, advice, ok := driverProblem(text); ok {
		return known, message + "; " + advice, false
	}
	return reason, message, false
}
