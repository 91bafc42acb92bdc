package expect

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// The fake client set answers every request for a log with this.
const fakeLog = "fake logs"

func newWatcher(t *testing.T, client *fake.Clientset) *Watcher {
	t.Helper()
	// The fake forgets what happens between a list and the watch after it: wait for the watches.
	const kinds = 6
	watching := make(chan struct{}, kinds)
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		watching <- struct{}{}
		return true, w, err
	})
	w, err := NewWatcher(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for range kinds {
		<-watching
	}
	return w
}

func subject(t *testing.T, kind, name, text string) Subject {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return Subject{Kind: kind, Namespace: "default", Name: name, Expectation: e}
}

func testPod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "pod-uid", Labels: labels},
		Spec: corev1.PodSpec{
			NodeName:       "node1",
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("made")}},
			Containers:     []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// made are the claim of testPod, and the slice with its device.
func made() []runtime.Object {
	claim := testClaim(resourceapi.DeviceRequestAllocationResult{Request: "gpu", Device: "gpu-a"})
	claim.Namespace, claim.Name = "default", "made"
	return []runtime.Object{claim, testSlice(1, "GPU-a")}
}

// await runs Await while change happens to the cluster.
func await(t *testing.T, w *Watcher, s Subject, change func()) Outcome {
	t.Helper()
	type answer struct {
		outcome Outcome
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		o, err := w.Await(t.Context(), s)
		answers <- answer{o, err}
	}()
	change()
	got := <-answers
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.outcome
}

func update(t *testing.T, client *fake.Clientset, pod *corev1.Pod, change func(*corev1.PodStatus)) {
	t.Helper()
	pod = pod.DeepCopy()
	change(&pod.Status)
	if _, err := client.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func succeed(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded }

func TestAwaitPod(t *testing.T) {
	pod := testPod("x", nil)
	client := fake.NewClientset(append(made(), pod)...)
	w := newWatcher(t, client)

	// The claim of a pod that has ended loses its allocation before the pod is looked at.
	ended := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made"}}
	if _, err := client.ResourceV1().ResourceClaims("default").UpdateStatus(t.Context(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := await(t, w, subject(t, "Pod", "x", "log: "+fakeLog), func() { update(t, client, pod, succeed) })
	if complaints := Compare(o, nil); len(complaints) > 0 {
		t.Errorf("complaints: %q", complaints)
	}
	if len(o.Pods) != 1 || len(o.Pods[0].Grants()) != 1 || o.Pods[0].Grants()[0].UUID != "GPU-a" {
		t.Errorf("pods: got %+v, want one with GPU-a", o.Pods)
	}
}

// TestAwaitWhatWasGiven: that a pod has ended may be known before what it was given.
func TestAwaitWhatWasGiven(t *testing.T) {
	pod := testPod("x", nil)
	client := fake.NewClientset(pod)
	o := await(t, newWatcher(t, client), subject(t, "Pod", "x", "log: "+fakeLog), func() {
		update(t, client, pod, succeed)
		for _, late := range made() {
			if err := client.Tracker().Add(late); err != nil {
				t.Fatal(err)
			}
		}
	})
	if len(o.Pods) != 1 || len(o.Pods[0].Grants()) != 1 || o.Pods[0].Grants()[0].UUID != "GPU-a" {
		t.Errorf("pods: got %+v, want one with GPU-a", o.Pods)
	}
}

// TestClaimMadeAgain: when a pod of a job ends, its claim may be made a second time, under another name.
func TestClaimMadeAgain(t *testing.T) {
	pod := testPod("x", nil)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("template")}}
	claim := testClaim(resourceapi.DeviceRequestAllocationResult{Request: "gpu", Device: "gpu-a"})
	claim.ObjectMeta = metav1.ObjectMeta{
		Namespace: "default", Name: "x-gpu-1", OwnerReferences: []metav1.OwnerReference{{UID: pod.UID}},
		Annotations: map[string]string{resourceapi.PodResourceClaimAnnotation: "gpu"},
	}
	client := fake.NewClientset(pod, claim, testSlice(1, "GPU-a"))
	w := newWatcher(t, client)
	again := &resourceapi.ResourceClaim{ObjectMeta: *claim.ObjectMeta.DeepCopy()}
	again.Name = "x-gpu-2"
	if _, err := client.ResourceV1().ResourceClaims("default").Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := await(t, w, subject(t, "Pod", "x", "log: "+fakeLog), func() {
		update(t, client, pod, func(s *corev1.PodStatus) {
			s.Phase = corev1.PodSucceeded
			s.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("x-gpu-2")}}
		})
	})
	if len(o.Pods) != 1 || len(o.Pods[0].Grants()) != 1 || o.Pods[0].Grants()[0].UUID != "GPU-a" {
		t.Errorf("pods: got %+v, want one with GPU-a", o.Pods)
	}
}

func TestAwaitRunning(t *testing.T) {
	pod := testPod("x", nil)
	client := fake.NewClientset(append(made(), pod)...)
	o := await(t, newWatcher(t, client), subject(t, "Pod", "x", "phase: Running\nlog: "+fakeLog), func() {
		update(t, client, pod, func(s *corev1.PodStatus) {
			s.Phase = corev1.PodRunning
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		})
	})
	if complaints := Compare(o, nil); len(complaints) > 0 {
		t.Errorf("complaints: %q", complaints)
	}
}

func TestAwaitPending(t *testing.T) {
	pod := testPod("x", nil)
	client := fake.NewClientset(pod)
	o := await(t, newWatcher(t, client), subject(t, "Pod", "x", "phase: Pending\nreason: cannot allocate all claims"), func() {
		for _, message := range []string{"waiting for the claim to be made", "0/2 nodes are available: 2 cannot allocate all claims"} {
			update(t, client, pod, func(s *corev1.PodStatus) {
				s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}
			})
		}
	})
	if complaints := Compare(o, nil); len(complaints) > 0 {
		t.Errorf("complaints: %q", complaints)
	}
}

func TestAwaitFailedPod(t *testing.T) {
	pod := testPod("x", nil)
	client := fake.NewClientset(pod)
	o := await(t, newWatcher(t, client), subject(t, "Pod", "x", "gpus: 1"), func() {
		update(t, client, pod, func(s *corev1.PodStatus) {
			s.Phase = corev1.PodFailed
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}}}
		})
	})
	complaints := Compare(o, nil)
	if len(complaints) != 1 || !strings.Contains(complaints[0], "is Failed: container main: Error with exit code 1") || !strings.Contains(complaints[0], fakeLog) {
		t.Errorf("complaints: got %q, want one with the exit code and the log", complaints)
	}
}

func TestAwaitJob(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"}}
	labels := map[string]string{batchv1.JobNameLabel: "j"}
	client := fake.NewClientset(job, testPod("j-b", labels), testPod("j-a", labels), testPod("other", nil))
	o := await(t, newWatcher(t, client), subject(t, "Job", "j", "log: "+fakeLog), func() {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		if _, err := client.BatchV1().Jobs("default").UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if complaints := Compare(o, nil); len(complaints) > 0 {
		t.Errorf("complaints: %q", complaints)
	}
	if len(o.Pods) != 2 || o.Pods[0].Name != "j-a" || o.Pods[1].Name != "j-b" {
		t.Errorf("pods: got %+v, want j-a and j-b", o.Pods)
	}
}

// TestAwaitDeployment: a terminating pod is in no outcome.
func TestAwaitDeployment(t *testing.T) {
	labels := map[string]string{"app": "d"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	old, current := testPod("d-old", labels), testPod("d-new", labels)
	old.DeletionTimestamp, old.Finalizers = ptr.To(metav1.Now()), []string{"test"}
	client := fake.NewClientset(deployment, old, current, testPod("other", nil))
	w := newWatcher(t, client)
	o := await(t, w, subject(t, "Deployment", "d", "phase: Running\nlog: "+fakeLog), func() {
		for _, status := range []appsv1.DeploymentStatus{
			{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
			{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1},
			{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
		} {
			deployment.Status = status
			if _, err := client.AppsV1().Deployments("default").UpdateStatus(t.Context(), deployment, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if complaints := Compare(o, nil); len(complaints) > 0 {
		t.Errorf("complaints: %q", complaints)
	}
	if len(o.Pods) != 1 || o.Pods[0].Name != "d-new" {
		t.Errorf("pods: got %+v, want d-new", o.Pods)
	}
}

// TestClaimTellsOnce: what the agent said about a device outlives its taking it back.
func TestClaimTellsOnce(t *testing.T) {
	claim := testClaim(resourceapi.DeviceRequestAllocationResult{Request: "gpu", Device: "gpu-a-mig-19-3"})
	untold, other := claim.DeepCopy(), claim.DeepCopy()
	untold.Status.Devices, other.Status.Devices = nil, nil
	other.Status.Allocation.Devices.Results[0].Device = "gpu-a"
	claims := map[string]*resourceapi.ResourceClaim{}
	for i, step := range []struct{ now, want *resourceapi.ResourceClaim }{
		{untold, untold}, {claim, claim}, {untold, claim}, {&resourceapi.ResourceClaim{}, claim}, {other, other},
	} {
		keep(claims, "x", step.now)
		if claims["x"] != step.want {
			t.Errorf("step %d: kept %+v, want %+v", i, claims["x"].Status, step.want.Status)
		}
	}
}

func TestAwaitGivesUp(t *testing.T) {
	pod := testPod("x", nil)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "unresolvable CDI devices"},
	}}}
	client := fake.NewClientset(pod,
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "e1"},
			InvolvedObject: corev1.ObjectReference{UID: pod.UID}, Type: corev1.EventTypeWarning,
			Reason: "FailedPrepareDynamicResources", Message: "GPU is held by default/other",
		})
	w := newWatcher(t, client)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	for name, want := range map[string]string{
		"x":       "expected Succeeded, is Pending: container main: CreateContainerError: unresolvable CDI devices; FailedPrepareDynamicResources: GPU is held by default/other",
		"unknown": "expected Succeeded, is Pending: it does not exist",
	} {
		o, err := w.Await(ctx, subject(t, "Pod", name, "gpus: 1"))
		if err != nil {
			t.Fatal(err)
		}
		if complaints := Compare(o, nil); len(complaints) != 1 || complaints[0] != want {
			t.Errorf("complaints about %s: got %q, want %q", name, complaints, want)
		}
	}
}

// TestEmptyLog: a log that is empty until the end of the wait is an error that names its container.
func TestEmptyLog(t *testing.T) {
	pod := testPod("x", nil)
	succeed(&pod.Status)
	client := fake.NewClientset(append(made(), pod)...)
	ctx, cancel := context.WithCancelCause(t.Context())
	reads := 0
	client.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "log" {
			return false, nil, nil
		}
		if reads++; reads == 3 {
			cancel(errors.New("enough"))
		}
		return true, &runtime.Unknown{}, nil
	})
	_, err := newWatcher(t, client).Await(ctx, subject(t, "Pod", "x", "gpus: 1"))
	const want = "read the log of default/x, container main: nothing is in it until the end of the wait, in 2 reads: enough"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
