package defrag

import (
	"bytes"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
)

const (
	oneClass, threeClass = "mig-1g.10gb.tessera.dev", "mig-3g.40gb.tessera.dev"
	profileOne           = 19 // ID of 1g.10gb
)

// scene is a cluster with a node whose first GPU has an instance in each half and whose second GPU is in use, and a pod that waits for half a GPU.
type scene struct {
	*clustertest.Scene
	node gpu.Node
	pods map[string]*corev1.Pod
}

func newScene(t *testing.T) scene {
	t.Helper()
	s := scene{Scene: clustertest.New(t), pods: map[string]*corev1.Pod{}}
	s.node = s.Node("gpu-a", "h100x2", nil)
	s.ProfileClass(oneClass, "1g.10gb")
	s.ProfileClass(threeClass, "3g.40gb")
	s.hold("chat", oneClass, 0, clustertest.MIGUse(profileOne, 1, 1), "ReplicaSet", 3*time.Hour)
	s.hold("embed", oneClass, 0, clustertest.MIGUse(profileOne, 6, 1), "ReplicaSet", time.Hour)
	s.hold("train", "gpu.tessera.dev", 1, gpu.Use{Shape: gpu.Whole}, "", time.Hour)
	claim := s.Claim("large", threeClass)
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode, claim.Spec.Devices.Requests[0].Exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
	pod := s.Pod("large", "", corev1.PodPending, claim)
	pod.Spec.SchedulerName = corev1.DefaultSchedulerName
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	s.Scheduler("../../../deployments/scheduler/replace/config.yaml")
	return s
}

// hold adds a pod with a device, which runs for some time, of a controller unless its kind is empty.
func (s scene) hold(name, class string, gpuAt int, use gpu.Use, owner string, running time.Duration) {
	claim := s.Claim(name, class, clustertest.Result(s.node, gpuAt, use))
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode, claim.Spec.Devices.Requests[0].Exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
	pod := s.Pod(name+"-0", "gpu-a", corev1.PodRunning, claim)
	pod.Labels = map[string]string{"app": name}
	pod.Status.StartTime = new(clustertest.Ago(running))
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: name, UID: "owner", Controller: new(true)}}
	}
	s.pods[name] = pod
}

// cluster returns a connection to the cluster, whose nodes have room for pods.
func (s scene) cluster() *cluster.Cluster {
	for _, object := range s.Objects {
		if n, ok := object.(*corev1.Node); ok {
			n.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("10"), "cpu": resource.MustParse("8")}
		}
	}
	return s.Cluster()
}

func run(t *testing.T, c *cluster.Cluster, pod string, format output.Format) (string, error) {
	t.Helper()
	var out bytes.Buffer
	r := request{pod: pod, out: &out, answer: output.Flags{Format: format, Color: "never"}, now: func() time.Time { return clustertest.Now }}
	err := r.run(t.Context(), c)
	return out.String(), err
}

func TestOutput(t *testing.T) {
	for file, test := range map[string]struct {
		change func(s scene)
		format output.Format
	}{
		"move.txt":  {func(scene) {}, output.Text},
		"move.json": {func(scene) {}, output.JSON},
		"stay.txt": {func(s scene) {
			s.pods["chat"].OwnerReferences[0].Kind = "Job"
			s.Add(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "chat"}})
			s.pods["embed"].Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		}, output.Text},
		"fits.txt": {func(s scene) { s.Node("gpu-b", "h100x2", nil) }, output.Text},
	} {
		t.Run(file, func(t *testing.T) {
			s := newScene(t)
			test.change(s)
			got, err := run(t, s.cluster(), "large", test.format)
			if err != nil {
				t.Fatal(err)
			}
			outputtest.Golden(t, file, got)
		})
	}
}

// What stays is not moved, and the reason is reported. The other pod in the way runs for a shorter time, and is moved otherwise.
func TestPodsThatStay(t *testing.T) {
	ignored := batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}}}
	job := func(s scene, policy *batchv1.PodFailurePolicy) {
		s.pods["embed"].OwnerReferences[0].Kind = "Job"
		s.Add(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "embed"}, Spec: batchv1.JobSpec{PodFailurePolicy: policy}})
	}
	budget := func(s scene, allowed int32) {
		s.Add(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "one"}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "embed"}}},
		})
	}
	for name, test := range map[string]struct {
		change func(s scene)
		reason string // empty if the pod is moved
	}{
		"nothing":             {func(scene) {}, ""},
		"no controller":       {func(s scene) { s.pods["embed"].OwnerReferences = nil }, "no controller would replace it"},
		"DaemonSet":           {func(s scene) { s.pods["embed"].OwnerReferences[0].Kind = "DaemonSet" }, "bound to its node by a DaemonSet"},
		"Job":                 {func(s scene) { job(s, nil) }, "counts an eviction as a failure"},
		"a missing Job":       {func(s scene) { s.pods["embed"].OwnerReferences[0].Kind = "Job" }, "its Job cannot be read"},
		"Job that ignores it": {func(s scene) { job(s, &ignored) }, ""},
		"budget":              {func(s scene) { budget(s, 0) }, "PodDisruptionBudget one allows no eviction now"},
		"budget of one":       {func(s scene) { budget(s, 1) }, ""},
		"higher priority":     {func(s scene) { s.pods["embed"].Spec.Priority = new(int32(5)) }, "of higher priority"},
		"safe-to-evict": {func(s scene) {
			s.pods["embed"].Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
		}, "safe-to-evict"},
		"ending": {func(s scene) {
			s.pods["embed"].DeletionTimestamp, s.pods["embed"].Finalizers = new(clustertest.Ago(0)), []string{"x"}
		}, "ends already"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			test.change(s)
			got, err := run(t, s.cluster(), "large", output.Text)
			if err != nil {
				t.Fatal(err)
			}
			moved := "\ndemo/embed-0 "
			if test.reason != "" {
				moved = "\ndemo/chat-0 "
			}
			if !strings.Contains(got, "fits after 1 move") || !strings.Contains(got, moved) || test.reason != "" && !strings.Contains(got, test.reason+": demo/embed-0") && !strings.Contains(got, test.reason) {
				t.Errorf("%s", got)
			}
		})
	}
}

// A destination must pass the scheduler's other plugins.
func TestDestinationsRunThePods(t *testing.T) {
	s := newScene(t)
	for _, pod := range []string{"chat", "embed"} {
		s.pods[pod].Spec.NodeSelector = map[string]string{"zone": "b"}
	}
	got, err := run(t, s.cluster(), "large", output.Text)
	if err != nil || !strings.Contains(got, "neither one move nor two make room (2 considered)") {
		t.Errorf("%v:\n%s", err, got)
	}
}

// Pods that share a claim are moved together.
func TestSharedClaimsMoveTogether(t *testing.T) {
	s := newScene(t)
	for _, object := range s.Objects {
		if claim, ok := object.(*resourceapi.ResourceClaim); ok && claim.Name == "embed" {
			s.Pod("embed-1", "gpu-a", corev1.PodRunning, claim).OwnerReferences = s.pods["embed"].OwnerReferences
		}
	}
	s.pods["chat"].OwnerReferences = nil
	got, err := run(t, s.cluster(), "large", output.Text)
	if err != nil || !strings.Contains(got, "demo/embed-0,demo/embed-1 ") {
		t.Errorf("%v:\n%s", err, got)
	}
}

// A pod that also has a device of another driver needs one at its destination, which the search cannot find.
func TestOtherDevicesStay(t *testing.T) {
	s := newScene(t)
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "nic.example.com"}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "nic.example.com"`}}}
	s.Add(class)
	nic := s.Claim("nic", class.Name, resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: "nic.example.com", Pool: "gpu-a", Device: "nic-0"})
	nic.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "embed-0", UID: s.pods["embed"].UID}}
	got, err := run(t, s.cluster(), "large", output.Text)
	if err != nil || !strings.Contains(got, "\ndemo/chat-0 ") {
		t.Errorf("%v:\n%s", err, got)
	}
}

func TestReadsOnly(t *testing.T) {
	c := newScene(t).cluster()
	if _, err := run(t, c, "large", output.Text); err != nil {
		t.Fatal(err)
	}
	for _, action := range c.Client.(*fake.Clientset).Actions() {
		switch action.GetVerb() {
		case "get", "list", "watch":
		default:
			t.Errorf("%s %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

func TestErrors(t *testing.T) {
	for pod, want := range map[string]string{
		"none":   "read pod demo/none",
		"chat-0": "runs on node gpu-a already: name a pod that is Pending",
		"plain":  "requires no devices that Tessera's scheduler plugin decides on",
	} {
		s := newScene(t)
		s.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "plain"}, Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName}})
		if _, err := run(t, s.cluster(), pod, output.Text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", pod, err, want)
		}
	}
}
