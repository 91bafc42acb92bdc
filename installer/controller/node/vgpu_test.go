package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// vgpuHost returns a cluster with a node that vgpuManager selects, on which nothing runs, and which was granted the host driver.
func vgpuHost(t *testing.T) *testCluster {
	t.Helper()
	spec := v1alpha1.ClusterPolicySpec{VGPUManager: v1alpha1.VGPUManagerSpec{
		Component: v1alpha1.Component{Enabled: new(true), Image: "registry.example.com/vgpu-manager:580.1"}, NodeSelector: controllertest.InPool("vgpu"),
	}}
	hardware := &v1alpha1.HardwareStatus{BootID: "b", GPUs: 2, OS: "ubuntu24.04", Kernel: "6.8"}
	cat := controllertest.Policies{Spec: spec}.Catalog()
	found, ok := cat.DriverFor(cat.Assign(controllertest.NodeInPool("vgpu")), hardware)
	if !ok || found.Err != nil {
		t.Fatalf("no driver: %v", found.Err)
	}
	node := controllertest.NodeInPool("vgpu")
	node.Name, node.Status = "n", controllertest.ServingNode("n").Status
	gpunode := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1alpha1.GPUNodeSpec{Driver: &found.Desired}, Status: v1alpha1.GPUNodeStatus{Hardware: hardware},
	}
	return newTestCluster(t, spec, nil, node, gpunode)
}

// runPod creates the ready pod of an operand on the node.
func (c *testCluster) runPod(operand, digest string) {
	c.Helper()
	pod := controllertest.AgentPod("n")
	pod.Name, pod.UID = operand, "uid-"+pod.UID
	pod.Labels, pod.Annotations = map[string]string{render.LabelName: operand}, map[string]string{render.AnnotationDigest: digest}
	if err := c.Create(c.Context(), pod); err != nil {
		c.Fatal(err)
	}
}

// settle reconciles the node until nothing changes.
func (c *testCluster) settle() *v1alpha1.GPUNode {
	c.Helper()
	for range 20 {
		before := c.Writes
		if node := c.step("n"); c.Writes == before {
			return node
		}
	}
	c.Fatal("the node does not settle")
	return nil
}

// A vGPU host is Ready with its driver alone. NVIDIA's GPU Operator runs neither toolkit nor device plugin nor CUDA validation there
// (controllers/state_manager.go:118-125): the host driver has no CUDA.
func TestVGPUHostsAreReadyWithTheirDriverAlone(t *testing.T) {
	c := vgpuHost(t)
	waiting := c.settle()
	digest := waiting.Spec.Driver.Digest
	if label := c.Node("n").Labels[v1alpha1.LabelDriver]; label != v1alpha1.DriverLabelValue(digest) || waiting.Status.Phase != v1alpha1.PhaseDriverInstalling {
		t.Fatalf("before its driver runs: label %q, phase %s: %s", label, waiting.Status.Phase, waiting.Status.Message)
	}
	c.runPod(render.OperandVGPUManager, digest)
	ready := c.settle()
	if ready.Status.Phase != v1alpha1.PhaseReady || !meta.IsStatusConditionTrue(ready.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("with its driver the node is %s: %s", ready.Status.Phase, ready.Status.Message)
	}
	labels := c.Node("n").Labels
	if labels[v1alpha1.LabelReady] != "true" || labels[v1alpha1.LabelAgent] != "" || labels[v1alpha1.LabelToolkit] != "" {
		t.Errorf("labels %v: want a ready node without agent and toolkit", labels)
	}
	pods := &corev1.PodList{}
	if err := c.List(t.Context(), pods, client.InNamespace(controllertest.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 {
		t.Errorf("%d pods, want the driver's alone: no validation", len(pods.Items))
	}
}

// The result that NVIDIA's vGPU device manager writes to the node's label (vgpu-device-manager cmd/nvidia-k8s-vgpu-dm/main.go:435-440) is in the status.
func TestVGPUConfigsThatFailAreInTheStatus(t *testing.T) {
	c := vgpuHost(t)
	c.runPod(render.OperandVGPUManager, c.settle().Spec.Driver.Digest)
	find := func(node *v1alpha1.GPUNode) *v1alpha1.ComponentStatus {
		i := slices.IndexFunc(node.Status.Components, func(s v1alpha1.ComponentStatus) bool { return s.Name == phase.ComponentVGPUDevices })
		if i < 0 {
			return nil
		}
		return &node.Status.Components[i]
	}
	if found := find(c.settle()); found != nil {
		t.Errorf("without its pod: %+v", found)
	}
	c.runPod(render.OperandVGPUDeviceManager, "")
	for _, step := range []struct {
		label string
		state v1alpha1.ComponentState
	}{
		{"", v1alpha1.ComponentReady}, {"pending", v1alpha1.ComponentReady}, {"failed", v1alpha1.ComponentFailed}, {"success", v1alpha1.ComponentReady},
	} {
		node := c.Node("n")
		node.Labels["nvidia.com/vgpu.config"], node.Labels["nvidia.com/vgpu.config.state"] = "A40-8Q", step.label
		if err := c.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		gpunode := c.settle()
		found := find(gpunode)
		if found == nil || found.State != step.state || (step.label == "failed") != strings.Contains(found.Message, `"A40-8Q"`) || time.Since(found.Since.Time) > time.Minute {
			t.Errorf("state %q: %+v", step.label, found)
		}
		if gpunode.Status.Phase != v1alpha1.PhaseReady {
			t.Errorf("state %q: the node is %s", step.label, gpunode.Status.Phase)
		}
	}
}
