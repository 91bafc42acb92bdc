package action

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// A validation has a claim and a pod for each part, once. One that fails does not stop the others.
func TestCreateValidation(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}}
	v := Validation{
		Node: gpuNode("n"), Parts: []ValidationPart{PartGPUs, PartMIG}, Barrier: "b", Timeout: time.Minute, Scheduler: "s",
		Scope: ValidationScope{Driver: "d", Without: []string{"GPU-1", "GPU-2"}},
	}
	s, c := newServer(t, namespace)
	for range 2 {
		if err := c.CreateValidation(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	if labels := read(s, "", ownNamespace, &corev1.Namespace{}).Labels; labels[resourceapi.DRAAdminNamespaceLabelKey] != "true" {
		t.Errorf("the namespace has labels %v", labels)
	}
	gpus := read(s, ownNamespace, ValidationName("n", PartGPUs), &resourceapi.ResourceClaim{})
	request := gpus.Spec.Devices.Requests[0].Exactly
	if request.AdminAccess == nil || !*request.AdminAccess || request.AllocationMode != resourceapi.DeviceAllocationModeAll ||
		len(request.Selectors) != 1 || request.Selectors[0].CEL.Expression != `!(device.attributes["d"].?uuid.orValue('') in ["GPU-1", "GPU-2"])` {
		t.Errorf("the claim of all GPUs requests %+v", request)
	}
	mig := read(s, ownNamespace, ValidationName("n", PartMIG), &resourceapi.ResourceClaim{})
	if request := mig.Spec.Devices.Requests[0].Exactly; request.AdminAccess != nil || request.Count != 1 || len(request.Selectors) > 0 {
		t.Errorf("the claim of a MIG device requests %+v", request)
	}
	pod := read(s, ownNamespace, ValidationName("n", PartGPUs), &corev1.Pod{})
	if pod.Spec.SchedulerName != "s" || *pod.Spec.ResourceClaims[0].ResourceClaimName != gpus.Name || pod.Annotations[AnnotationBarrier] != "b" || NodeOf(pod) != "n" {
		t.Errorf("the pod is %+v", pod)
	}
	s, c = newServer(t, namespace.DeepCopy())
	s.fail = func(verb string, o runtime.Object) error {
		if _, is := o.(*resourceapi.ResourceClaim); is && verb == "create" {
			return errRefused
		}
		return nil
	}
	mustFail(t, "create", c.CreateValidation(t.Context(), v))
	if !exists(s, ownNamespace, ValidationName("n", PartMIG), &corev1.Pod{}) {
		t.Error("the error of a claim stops the other part")
	}
}

// One GPU is selected by its UUID, and no scope selects all.
func TestValidationScopes(t *testing.T) {
	if got := (ValidationScope{Driver: "d"}).selectors(); got != nil {
		t.Errorf("all GPUs: got %+v", got)
	}
	got := ValidationScope{Driver: "d", Only: "GPU-1"}.selectors()
	if len(got) != 1 || got[0].CEL.Expression != `device.attributes["d"].?uuid.orValue('') == "GPU-1"` {
		t.Errorf("one GPU: got %+v", got)
	}
	node := gpuNode("n")
	node.Spec.Remediations = []v1alpha1.Remediation{{GPU: "gpu-a"}}
	if diff := cmp.Diff([]ValidationPart{PartGPUs, PartMIG, "-gpu-a"}, AllValidationParts(node)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

// Pods and claims of a validation are deleted, except those that are being deleted already. An error does not stop the others.
func TestDeleteValidation(t *testing.T) {
	meta := func(part ValidationPart) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ownNamespace, Name: ValidationName("n", part)}
	}
	leaving := &corev1.Pod{ObjectMeta: meta(PartMIG)}
	leaving.Finalizers, leaving.DeletionTimestamp = []string{"f/f"}, new(metav1.Now())
	s, c := newServer(t, &corev1.Pod{ObjectMeta: meta(PartGPUs)}, &resourceapi.ResourceClaim{ObjectMeta: meta(PartGPUs)}, leaving)
	if err := c.DeleteValidation(t.Context(), "n", NodeValidationParts()...); err != nil {
		t.Fatal(err)
	}
	want := []string{"delete *v1.Pod tessera-validation-n", "delete *v1.ResourceClaim tessera-validation-n"}
	if diff := cmp.Diff(want, s.writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	s, c = newServer(t, &corev1.Pod{ObjectMeta: meta(PartGPUs)}, &resourceapi.ResourceClaim{ObjectMeta: meta(PartGPUs)})
	s.fail = func(verb string, o runtime.Object) error {
		_, pod := o.(*corev1.Pod)
		if pod && verb == "delete" || !pod && verb == "get" {
			return errRefused
		}
		return nil
	}
	err := c.DeleteValidation(t.Context(), "n", PartGPUs)
	mustFail(t, "delete", err)
	if text := err.Error(); !strings.Contains(text, "delete Pod tessera-validation-n") {
		t.Errorf("the error is %q", text)
	}
}

// The namespace is labeled once; without the label no claim with admin access is created.
func TestAllowAdminAccess(t *testing.T) {
	s, c := newServer(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace, Labels: map[string]string{"own": "x"}}})
	for range 2 {
		if err := c.AllowAdminAccess(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if labels := read(s, "", ownNamespace, &corev1.Namespace{}).Labels; len(labels) != 2 || len(s.writes) != 1 {
		t.Errorf("%d writes, labels %v", len(s.writes), labels)
	}
	for _, verb := range []string{"get", "patch"} {
		s, c := newServer(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}})
		s.failing(verb)
		mustFail(t, verb, c.CreateValidation(t.Context(), Validation{Node: gpuNode("n"), Parts: NodeValidationParts()}))
		if slices.ContainsFunc(s.writes, func(w string) bool { return strings.HasPrefix(w, "create") }) {
			t.Errorf("%s: created without admin access: %q", verb, s.writes)
		}
	}
}

// The pod that changes the MIG mode runs the host verb on its node, with the roots below the host's.
func TestMIGModePod(t *testing.T) {
	s, c := newServer(t)
	change := MIGModeChange{
		Node: gpuNode("n"), Mode: v1alpha1.MIGEnabled, Image: "node:v1", PullSecrets: []string{"own"},
		Paths: v1alpha1.HostPathsSpec{Root: "/", Dev: "/dev", DriverInstallDir: "/run/nvidia/driver"},
	}
	for range 2 {
		if err := c.CreateMIGModePod(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	pod := read(s, ownNamespace, MIGModePodName("n"), &corev1.Pod{})
	want := []string{
		"host", "mig-mode", "--mode=Enabled", "--host-root=/host", "--proc-root=/host/proc", "--sys-root=/host/sys", "--dev-root=/host/dev",
		"--driver-root=/run/nvidia/driver",
	}
	if diff := cmp.Diff(want, pod.Spec.Containers[0].Args); diff != "" || pod.Spec.NodeName != "n" || pod.Annotations[AnnotationBarrier] != "Enabled" ||
		len(pod.Spec.ImagePullSecrets) != 1 {
		t.Errorf("%+v, arguments (-want +got):\n%s", pod, diff)
	}
	for range 2 {
		if err := c.DeleteMIGModePod(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
	}
	if exists(s, ownNamespace, MIGModePodName("n"), &corev1.Pod{}) {
		t.Error("the pod is not deleted")
	}
	s.failing("create")
	mustFail(t, "create", c.CreateMIGModePod(t.Context(), change))
	s.failing("delete")
	mustFail(t, "delete", c.DeleteMIGModePod(t.Context(), "n"))
}

// Labels describe what discovery and agent reported, with values that labels may have.
func TestFeatureLabels(t *testing.T) {
	agent := v1alpha1.AgentStatus{
		GPUs: 8, Product: "NVIDIA H100 80GB HBM3", Memory: 80 << 30, Architecture: "Hopper", MIGCapable: true, Clique: "c/1", ComputeCapability: "9.0",
		DriverVersion: "580.95.05", CUDAVersion: "13.0",
	}
	machine := v1alpha1.HardwareStatus{GPUs: 8, Machine: "Standard PC (i440FX + PIIX, 1996)", Mode: "compute"}
	type node = v1alpha1.GPUNodeStatus
	tests := map[string]struct {
		status node
		want   map[string]string
	}{
		"nothing": {node{}, map[string]string{}},
		"discovery only": {node{Hardware: &machine, Agent: &v1alpha1.AgentStatus{}}, map[string]string{
			v1alpha1.LabelPresent: "true", labelMachine: "Standard-PC-i440FX-PIIX-1996", labelMode: "compute",
		}},
		"a machine without a name": {node{Hardware: &v1alpha1.HardwareStatus{GPUs: 1, Mode: "graphics"}}, map[string]string{
			v1alpha1.LabelPresent: "true", labelMachine: "unknown", labelMode: "graphics",
		}},
		"an agent": {node{Agent: &agent}, map[string]string{
			v1alpha1.LabelPresent: "true", labelProduct: "NVIDIA-H100-80GB-HBM3", labelCount: "8", labelMemory: "81920", labelFamily: "hopper", labelMIG: "true",
			labelClique: "c-1", labelMajor: "9", labelMinor: "0", labelDriver + "full": "580.95.05", labelDriver + "major": "580", labelDriver + "minor": "95",
			labelDriver + "revision": "05", labelRuntime + "full": "13.0", labelRuntime + "major": "13", labelRuntime + "minor": "0",
			labelShares: "1", labelSharing: "none",
		}},
		"an agent without a driver": {node{Agent: &v1alpha1.AgentStatus{GPUs: 1, Product: strings.Repeat("x", 70)}}, map[string]string{
			v1alpha1.LabelPresent: "true", labelProduct: strings.Repeat("x", 63), labelCount: "1", labelFamily: "", labelMIG: "false", labelClique: "",
			labelShares: "1", labelSharing: "none",
		}},
		"mixed products": {node{Agent: &v1alpha1.AgentStatus{GPUs: 8, Product: "NVIDIA A30, NVIDIA L40S"}}, map[string]string{
			v1alpha1.LabelPresent: "true", labelProduct: "NVIDIA-A30", labelCount: "8", labelFamily: "", labelMIG: "false", labelClique: "",
			labelShares: "1", labelSharing: "none",
		}},
		"a version of two parts": {node{Agent: &v1alpha1.AgentStatus{GPUs: 1, DriverVersion: "580.1"}}, map[string]string{
			v1alpha1.LabelPresent: "true", labelProduct: "", labelCount: "1", labelFamily: "", labelMIG: "false", labelClique: "",
			labelShares: "1", labelSharing: "none", labelDriver + "full": "580.1", labelDriver + "major": "580", labelDriver + "minor": "1",
		}},
	}
	keys := FeatureLabelKeys()
	for name, test := range tests {
		got := FeatureLabels(test.status)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for key := range got {
			if !slices.Contains(keys, key) {
				t.Errorf("%s is not among the keys", key)
			}
		}
	}
}
