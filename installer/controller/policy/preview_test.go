package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/render"
)

// TestPreviewEdit edits the policies of a cluster of three nodes that run their desired drivers: two with the policy's driver, on one of them two pods,
// and one with a driver of an NVIDIADriver.
func TestPreviewEdit(t *testing.T) {
	t.Parallel()
	images := render.Images{Node: "node:v1", Driver: "registry.example.com/driver", DriverVersion: "570.1"}
	policy := &v1alpha1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName},
		Spec:       v1alpha1.ClusterPolicySpec{Driver: v1alpha1.DriverSpec{SecretEnv: "proxy"}},
	}
	own := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: v1alpha1.NVIDIADriverSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"own": "yes"}},
		DriverSpec:   v1alpha1.DriverSpec{Version: "575.2"},
	}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: "proxy"}, Data: map[string][]byte{"PROXY": []byte("a")}}
	objects := []client.Object{policy, own, secret}
	for _, name := range []string{"a", "b", "c"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
		if name == "c" {
			node.Labels["own"] = "yes"
		}
		objects = append(objects, node, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.GPUNodeStatus{
			Phase: v1alpha1.PhaseReady, Hardware: &v1alpha1.HardwareStatus{BootID: "1", GPUs: 8, OS: "ubuntu24.04", Kernel: "6.8.0-1-generic", Architecture: "amd64"},
		}})
	}
	for _, name := range []string{"one", "two"} {
		// A user may call a claim what the installer calls its own.
		named := map[string]string{render.LabelName: render.OperandValidation}
		objects = append(objects, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, Labels: named}, Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Driver: v1alpha1.DriverName, Pool: "b-" + v1alpha1.DriverName, Device: name},
			}}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name}},
		}})
	}
	c := controllertest.NewPlainClient(t, objects...)
	settle(t, c, images)

	tests := map[string]struct {
		policy func(*v1alpha1.ClusterPolicy)
		driver func(*v1alpha1.NVIDIADriver)
		// nodes and pods are those of the policy's driver and of the own one.
		want    map[string][2]int32
		problem string
	}{
		"nothing": {want: map[string][2]int32{}},
		"a newer driver": {
			policy: func(p *v1alpha1.ClusterPolicy) { p.Spec.Driver.Version = "580.1" }, want: map[string][2]int32{catalog.PolicyOwner: {2, 2}},
		},
		"another driver of one node": {
			driver: func(d *v1alpha1.NVIDIADriver) { d.Spec.KernelModuleType = v1alpha1.ModulesOpen }, want: map[string][2]int32{"own": {1, 0}},
		},
		"the own driver for all nodes": {
			driver: func(d *v1alpha1.NVIDIADriver) { d.Spec.NodeSelector = &metav1.LabelSelector{} }, want: map[string][2]int32{"own": {2, 2}},
		},
		"both": {
			policy: func(p *v1alpha1.ClusterPolicy) { p.Spec.Driver.Version = "580.1" },
			driver: func(d *v1alpha1.NVIDIADriver) { d.Spec.Version = "580.1" },
			want:   map[string][2]int32{catalog.PolicyOwner: {2, 2}, "own": {1, 0}},
		},
		"labels, tolerations and the agent's image": {
			policy: func(p *v1alpha1.ClusterPolicy) {
				p.Spec.DaemonSets.Labels = map[string]string{"team": "ml"}
				p.Spec.Driver.Tolerations = []corev1.Toleration{{Key: "gpu"}}
				p.Spec.NodeAgent.Image = "node:v2"
			},
			want: map[string][2]int32{},
		},
		"fewer nodes": {
			policy: func(p *v1alpha1.ClusterPolicy) {
				p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"own": "yes"}}
				p.Spec.Driver.Version = "580.1"
			},
			want: map[string][2]int32{},
		},
		"a ConfigMap that is not there": {
			policy: func(p *v1alpha1.ClusterPolicy) { p.Spec.Driver.RepoConfig = "mirror" }, want: map[string][2]int32{},
			problem: "ConfigMap tessera-system/mirror, referenced by",
		},
	}
	for name, test := range tests {
		var edit Edit
		if test.policy != nil {
			edit.Policy = policy.DeepCopy()
			test.policy(edit.Policy)
		}
		if test.driver != nil {
			edited := own.DeepCopy()
			test.driver(edited)
			edit.Drivers = append(edit.Drivers, *edited)
		}
		preview, err := PreviewEdit(t.Context(), c, controllertest.Namespace, images, edit)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := map[string][2]int32{}
		for owner, plan := range preview.Plans {
			if plan.Nodes > 0 {
				got[owner] = [2]int32{plan.Nodes, plan.Pods}
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if problems := strings.Join(preview.Problems, "\n"); !strings.Contains(problems, test.problem) || test.problem == "" && problems != "" {
			t.Errorf("%s: problems %q, want %q", name, problems, test.problem)
		}
	}
}

// settle grants each node its desired driver.
func settle(t *testing.T, c client.Client, images render.Images) {
	t.Helper()
	cat, err := catalog.NewSource(&editedClient{Client: c}, controllertest.Namespace, images).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		node, gpunode := &corev1.Node{}, &v1alpha1.GPUNode{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, gpunode); err != nil {
			t.Fatal(err)
		}
		found, ok := cat.DriverFor(cat.Assign(node), gpunode.Status.Hardware)
		if !ok || found.Err != nil {
			t.Fatalf("the driver of %s: %t, %v", name, ok, found.Err)
		}
		gpunode.Spec.Driver, gpunode.Status.LastGoodDriver = &found.Desired, &found.Desired
		if err := c.Update(t.Context(), gpunode); err != nil {
			t.Fatal(err)
		}
	}
}
