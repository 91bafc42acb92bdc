package mps

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ended reports whether kubelet will not start the pod again.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// describePod describes the state of a pod whose daemon does not serve yet.
func describePod(pod *corev1.Pod) string {
	var parts []string
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil:
			parts = append(parts, "its container is waiting: "+joinReason(c.State.Waiting.Reason, c.State.Waiting.Message))
		case c.State.Terminated != nil:
			parts = append(parts, "its container ended: "+joinReason(c.State.Terminated.Reason, c.State.Terminated.Message))
		}
		if last := c.LastTerminationState.Terminated; last != nil {
			parts = append(parts, fmt.Sprintf("it ended before with status %d: %s", last.ExitCode, joinReason(last.Reason, last.Message)))
		}
	}
	if reason := joinReason(pod.Status.Reason, pod.Status.Message); reason != "" {
		parts = append(parts, reason)
	}
	if len(pod.Status.ContainerStatuses) == 0 && !ended(pod) {
		parts = append(parts, "kubelet has not started it")
	}
	phase := string(pod.Status.Phase)
	if phase == "" {
		phase = string(corev1.PodPending)
	}
	return strings.Join(append([]string{fmt.Sprintf("pod %s is %s", pod.Name, phase)}, parts...), "; ")
}

// describeWait describes why the daemon does not serve with the configuration.
func describeWait(live podView, s state, serves bool, c configuration) string {
	parts := []string{"it does not serve"}
	if serves {
		parts = []string{"it serves with other limits"}
	}
	if live.waitReason != "" {
		parts = append(parts, live.waitReason)
	}
	if s.LastError != "" && (!serves || !s.Config.equals(c, s.Protocol)) {
		parts = append(parts, fmt.Sprintf("last error of %d, at %s: %s", s.Restarts, s.LastErrorAt.UTC().Format("15:04:05"), s.LastError))
	}
	return strings.Join(parts, "; ")
}

func joinReason(reason, message string) string {
	return strings.Join(strings.FieldsFunc(reason+"\n"+message, func(r rune) bool { return r == '\n' }), ": ")
}
