package upgrade

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/installer/render"
)

// installed returns a cluster with one node that runs the driver of the policy.
func installed(t *testing.T) client.Client {
	t.Helper()
	images := render.Images{Node: "node:v1", Driver: "registry.example.com/driver", DriverVersion: "570.1"}
	policy := v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}
	driver, err := render.Driver(render.Input{Namespace: "tessera-system", Policy: policy, Images: images}, render.DriverSet{
		Owner: "ClusterPolicy/default", Spec: policy.Spec.Driver, Host: render.Host{OS: "ubuntu24.04"},
	})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(&policy,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: imagesName}, Data: map[string]string{
			imagesKey: "node: node:v1\ndriver: registry.example.com/driver\ndriverVersion: \"570.1\"\nlater: release\n",
		}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-a", Labels: map[string]string{"pool": "a"}}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}},
		&v1alpha1.GPUNode{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu-a"}, Spec: v1alpha1.GPUNodeSpec{Driver: &driver},
			Status: v1alpha1.GPUNodeStatus{
				Phase: v1alpha1.PhaseReady, LastGoodDriver: &driver, Hardware: &v1alpha1.HardwareStatus{BootID: "1", GPUs: 8, OS: "ubuntu24.04", Kernel: "6.8.0"},
			},
		}).Build()
}

const header = "apiVersion: tessera.dev/v1alpha1\n"

func TestEdit(t *testing.T) {
	t.Parallel()
	const policyUntouched = "ClusterPolicy/default\n  No node changes its driver, no pod loses its GPUs.\n"
	tests := map[string]struct{ file, want string }{
		"the same":             {header + "kind: ClusterPolicy\nmetadata: {name: default}\n", "Effect of applying the files:\n" + policyUntouched},
		"labels":               {header + "kind: ClusterPolicy\nmetadata: {name: default}\nspec: {daemonSets: {labels: {a: b}}}\n", "Effect of applying the files:\n" + policyUntouched},
		"the version as it is": {header + "kind: ClusterPolicy\nmetadata: {name: default}\nspec: {driver: {version: \"570.1\"}}\n", "Effect of applying the files:\n" + policyUntouched},
		"another version": {header + "kind: ClusterPolicy\nmetadata: {name: default}\nspec: {driver: {version: \"580.1\"}}\n", `Effect of applying the files:
ClusterPolicy/default
  1 node to change, 0 pods to lose GPUs, in this order:
  WAVE   NODES   NAMES
  1      1       gpu-a
`},
		"a driver for the node": {"# a new one\n---\n" + header + "kind: NVIDIADriver\nmetadata: {name: new}\nspec: {version: \"580.1\", nodeSelector: {matchLabels: {pool: a}}}\n", "Effect of applying the files:\n" + policyUntouched + `
NVIDIADriver/new
  1 node to change, 0 pods to lose GPUs, in this order:
  WAVE   NODES   NAMES
  1      1       gpu-a
`},
		"a driver that needs what is not there": {header + "kind: ClusterPolicy\nmetadata: {name: default}\nspec: {driver: {repoConfig: mirror}}\n", "Effect of applying the files:\n" +
			"ConfigMap tessera-system/mirror, referenced by repoConfig, does not exist; create it, or remove the field\n" + policyUntouched},
	}
	for name, test := range tests {
		c := installed(t)
		var out bytes.Buffer
		load := func(ctx context.Context) (Report, error) {
			return preview(ctx, c, "tessera-system", []string{"-"}, strings.NewReader(test.file))
		}
		if err := run(t.Context(), load, output.Flags{Format: output.Text, Color: "never"}, &out); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		kept := &v1alpha1.ClusterPolicy{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "default"}, kept); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v1alpha1.ClusterPolicySpec{}, kept.Spec); diff != "" {
			t.Errorf("%s: the preview changed the policy: %s", name, diff)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	t.Parallel()
	policy := header + "kind: ClusterPolicy\nmetadata: {name: default}\n"
	tests := map[string]struct{ namespace, file, want string }{
		"nothing":           {"tessera-system", "# nothing\n", "no ClusterPolicy or NVIDIADriver of tessera.dev in the files"},
		"policy of NVIDIA":  {"tessera-system", "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\n", "nvidia.com/v1 ClusterPolicy: must be a ClusterPolicy or NVIDIADriver of tessera.dev/v1alpha1"},
		"another kind":      {"tessera-system", header + "kind: GPUNode\n", "must be a ClusterPolicy or NVIDIADriver"},
		"an unknown field":  {"tessera-system", policy + "spec: {devicePlugin: {}}\n", `unknown field "devicePlugin"`},
		"another namespace": {"elsewhere", policy, "name it with --system-namespace"},
	}
	for name, test := range tests {
		if _, err := preview(t.Context(), installed(t), test.namespace, []string{"-"}, strings.NewReader(test.file)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if _, err := preview(t.Context(), installed(t), "tessera-system", []string{"no-such.yaml"}, nil); err == nil || !strings.Contains(err.Error(), "no-such.yaml") {
		t.Errorf("missing file: %v", err)
	}
}
