package nodestate_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// TestTrimmedPodsAreObservedAsWholeOnes checks with generated pods that the installer's cache keeps everything that is read from a pod, and that a pod of
// a DaemonSet becomes small.
func TestTrimmedPodsAreObservedAsWholeOnes(t *testing.T) {
	states := map[phase.PodState]int{}
	for seed := range uint64(5000) {
		whole := generatePod(rand.New(rand.NewPCG(seed, 0)))
		kept, err := informers.TrimPod(whole.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		trimmed, ok := kept.(*corev1.Pod)
		if !ok {
			t.Fatalf("the cache keeps a %T", kept)
		}
		type reading struct {
			Pod, Validation, Operand phase.Pod
			Name, Node               string
			Nodes                    []string
		}
		read := func(pod *corev1.Pod) reading {
			return reading{
				nodestate.ObservePod(pod), nodestate.ObserveValidationPod(pod), nodestate.OperandPod([]corev1.Pod{*pod}, render.OperandNodeAgent),
				pod.Labels[render.LabelName], action.NodeOf(pod), informers.PodNodes(pod),
			}
		}
		want := read(whole)
		if diff := cmp.Diff(want, read(trimmed)); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
		states[want.Pod.State]++
		if text, err := json.Marshal(trimmed); err != nil || len(text) > 3000 {
			t.Errorf("seed %d: a pod of %d bytes in the cache, error %v", seed, len(text), err)
		}
	}
	if len(states) != 6 {
		t.Errorf("the pods have the states %v, want all but absent", states)
	}
}

// generatePod returns a pod of any state with containers that failed, wait, run or succeeded.
func generatePod(r *rand.Rand) *corev1.Pod {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	at := func() metav1.Time { return metav1.Unix(r.Int64N(1000), 0) }
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "own", Name: "p", UID: "u", ResourceVersion: "1", CreationTimestamp: at(), GenerateName: "p-",
			Labels:      map[string]string{render.LabelName: pick(render.OperandNodeAgent, render.OperandToolkit), "controller-revision-hash": "h"},
			Annotations: map[string]string{render.AnnotationDigest: pick("a", "b"), action.AnnotationBarrier: pick("", "7"), "other": "value"},
		},
		Spec: corev1.PodSpec{
			NodeName: pick("", "n"), RestartPolicy: corev1.RestartPolicy(pick("Always", "Never")),
			Containers: []corev1.Container{{Name: "c", Args: []string{string(make([]byte, 4000))}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodPhase(pick("Pending", "Running", "Running", "Succeeded", "Failed")), Reason: pick("", "", "Evicted"), Message: pick("", "m"), PodIP: "10.0.0.1",
		},
	}
	if r.IntN(4) == 0 {
		pod.Labels[action.LabelNode] = "n"
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "GPUNode", Name: "n"}}
	}
	if r.IntN(8) == 0 {
		pod.DeletionTimestamp = new(at())
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.PodInitialized} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionStatus(pick("True", "False")), Reason: pick("", "Unschedulable"), Message: pick("", "m"),
			LastTransitionTime: at(), LastProbeTime: at(),
		})
	}
	verb := `{"verb":"unload","done":false,"reason":"ModuleInUse","message":"end process 7"}`
	terminated := func() *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{
			ExitCode: int32(r.IntN(2)), Reason: pick("", "Error"), Message: pick("", verb, "first\nlast"), FinishedAt: metav1.NewTime(time.Unix(1, 0)),
		}
	}
	for range 2 {
		s := corev1.ContainerStatus{
			Name: "c", Image: "i", ImageID: "sha256:0", Ready: r.IntN(2) == 0, RestartCount: int32(r.IntN(5)),
			Resources: &corev1.ResourceRequirements{}, VolumeMounts: []corev1.VolumeMountStatus{{Name: "v"}},
		}
		switch r.IntN(3) {
		case 0:
			s.State.Terminated = terminated()
		case 1:
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: pick("CrashLoopBackOff", "ErrImagePull", "CreateContainerError", ""), Message: "not found"}
		default:
			s.State.Running = &corev1.ContainerStateRunning{}
		}
		if r.IntN(2) == 0 {
			s.LastTerminationState.Terminated = terminated()
		}
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, s)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
	}
	return pod
}
