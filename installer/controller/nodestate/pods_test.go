package nodestate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/installer/phase"
)

func TestObservedPods(t *testing.T) {
	ended := func(code int32, message string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off 10s"}}
	}
	verb := `{"verb":"unload","done":false,"reason":"ModuleInUse","message":"end process 7"}`
	const pull = "image i cannot be pulled; see the events of pod p"
	tests := map[string]struct {
		phase      corev1.PodPhase
		init, main corev1.ContainerStatus
		want       phase.Pod
	}{
		"new":     {phase: corev1.PodPending, want: phase.Pod{State: phase.PodPending}},
		"running": {phase: corev1.PodRunning, want: phase.Pod{State: phase.PodStarting}},
		"one of kubelet's words for an image that is missing": {
			phase: corev1.PodPending, main: corev1.ContainerStatus{State: waiting("ErrImagePull")},
			want: phase.Pod{State: phase.PodFailed, Reason: "ImagePullBackOff", Message: pull},
		},
		"the other word": {
			phase: corev1.PodPending, main: corev1.ContainerStatus{State: waiting("ImagePullBackOff")},
			want: phase.Pod{State: phase.PodFailed, Reason: "ImagePullBackOff", Message: pull},
		},
		"a host verb has a reason": {
			phase: corev1.PodPending, init: corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended(1, verb)}},
			want: phase.Pod{State: phase.PodFailed, Reason: "ModuleInUse", Message: "end process 7"},
		},
		"and still does while it is tried again": {
			phase: corev1.PodPending, init: corev1.ContainerStatus{
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: ended(1, verb)},
			},
			want: phase.Pod{State: phase.PodFailed, Reason: "ModuleInUse", Message: "end process 7"},
		},
		"failed once": {
			phase: corev1.PodRunning, main: corev1.ContainerStatus{RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: ended(1, "")}},
			want: phase.Pod{State: phase.PodStarting, Reason: "Error", Message: "container c exited with code 1"},
		},
		"fails again and again, waiting": {
			phase: corev1.PodRunning, main: corev1.ContainerStatus{
				RestartCount: 4, State: waiting("CrashLoopBackOff"), LastTerminationState: corev1.ContainerState{Terminated: ended(1, "first\nlast")},
			},
			want: phase.Pod{State: phase.PodFailed, Reason: "Error", Message: "container c exited with code 1: last"},
		},
		"fails again and again, running": {
			phase: corev1.PodRunning, main: corev1.ContainerStatus{
				RestartCount: 5, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: ended(1, "last")},
			},
			want: phase.Pod{State: phase.PodFailed, Reason: "Error", Message: "container c exited with code 1: last"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: test.phase}}
			pod.Name = "p"
			test.init.Name, test.main.Name, test.main.Image = "i", "c", "i"
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{test.init}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{test.main}
			test.want.Name = "p"
			if diff := cmp.Diff(test.want, ObservePod(pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
