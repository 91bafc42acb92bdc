package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// TestMarksOfANodeThatIsLeftOut checks that a node that no policy selects any more loses the installer's taint and labels, and keeps those of other
// clients.
func TestMarksOfANodeThatIsLeftOut(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Labels: map[string]string{v1alpha1.LabelPresent: "true", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.family": "theirs"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: v1alpha1.TaintNotReady, Effect: corev1.TaintEffectNoSchedule}, {Key: "own", Effect: corev1.TaintEffectNoSchedule},
		}},
	}
	c, now := controllertest.NewPlainClient(t, node), &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), now); err != nil {
		t.Fatal(err)
	}
	wrote := &metav1.FieldsV1{}
	wrote.SetRawString(`{"f:metadata":{"f:labels":{"f:` + v1alpha1.LabelPresent + `":{},"f:nvidia.com/gpu.count":{}}}}`)
	now.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: action.Manager, FieldsV1: wrote}}
	r := New(Config{Cluster: action.Cluster{Client: c}})
	s := &nodeObservation{Observation: nodestate.Observation{KubeNode: now, GPUNode: &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{
		Hardware: &v1alpha1.HardwareStatus{GPUs: 8}, Agent: &v1alpha1.AgentStatus{GPUs: 8, Architecture: "Hopper"},
	}}}}
	cat := controllertest.Policies{Spec: v1alpha1.ClusterPolicySpec{ReadinessTaint: true}}.Catalog()
	if err := r.updateNodeMarks(t.Context(), cat, s, phase.Decision{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"nvidia.com/gpu.family": "theirs"}, now.Labels); diff != "" {
		t.Error("labels:", diff)
	}
	if diff := cmp.Diff([]corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoSchedule}}, now.Spec.Taints); diff != "" {
		t.Error("taints:", diff)
	}
}

// TestNodesWithoutGPUs checks that a node without a GPU gets no labels and no taint.
func TestNodesWithoutGPUs(t *testing.T) {
	tests := map[string]struct {
		hardware *v1alpha1.HardwareStatus
		want     phase.Decision
		tainted  bool
	}{
		"not looked at yet": {nil, phase.Decision{Phase: v1alpha1.PhasePreflight, Reason: phase.ReasonHardwareUnknown}, true},
		"none":              {&v1alpha1.HardwareStatus{BootID: "b"}, phase.Decision{Phase: v1alpha1.PhaseAbsent, Reason: phase.ReasonNotSelected}, false},
		"one": {
			&v1alpha1.HardwareStatus{BootID: "b", GPUs: 1}, phase.Decision{Phase: v1alpha1.PhasePreflight, Reason: phase.ReasonWaitingForRollout}, true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{BootID: "b"}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			}}
			gpunode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.GPUNodeStatus{Hardware: test.hardware}}
			c := controllertest.NewClient(t, n, gpunode)
			r := New(Config{Cluster: action.Cluster{Client: c, Live: c, Namespace: controllertest.Namespace}})
			cat := controllertest.Policies{Spec: v1alpha1.ClusterPolicySpec{ReadinessTaint: true}}.Catalog()
			s, err := r.observe(t.Context(), cat, gpunode)
			if err != nil {
				t.Fatal(err)
			}
			d := phase.Next(s.Observed)
			if d.Phase != test.want.Phase || d.Reason != test.want.Reason {
				t.Errorf("decided %s %s (%s), want %s %s", d.Phase, d.Reason, d.Message, test.want.Phase, test.want.Reason)
			}
			if err := r.updateNodeMarks(t.Context(), cat, s, d); err != nil {
				t.Fatal(err)
			}
			if got := len(s.KubeNode.Spec.Taints) > 0; got != test.tainted {
				t.Errorf("tainted: %t", got)
			}
		})
	}
}
