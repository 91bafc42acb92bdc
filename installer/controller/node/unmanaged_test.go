package node

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// abandon deletes the ClusterPolicy.
func (c *testCluster) abandon() {
	c.Helper()
	if err := c.Delete(c.Context(), &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}); err != nil {
		c.Fatal(err)
	}
}

// TestWithoutAPolicyGPUsAreGivenBack checks that without a ClusterPolicy, as with mode Off, a GPU that was not reset is released, a requested reboot is
// withdrawn and monitoring returns; a GPU that was reset and not validated stays held. The rest of the node is unchanged.
func TestWithoutAPolicyGPUsAreGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		step     v1alpha1.RemediationStep
		attempts int32
		held     bool
	}{
		"while it is drained":         {v1alpha1.RemediationStepDrain, 0, false},
		"while a reboot is requested": {v1alpha1.RemediationStepRebootRequested, 0, false},
		"after a reset":               {v1alpha1.RemediationStepRebootRequested, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			faulted := controllertest.NodeInRemediation(t, test.step, remediation.ReasonDraining, test.attempts)
			if test.step == v1alpha1.RemediationStepRebootRequested {
				faulted.Status.Remediations[0].BootID = "b"
			}
			h := newTestCluster(t, v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}, []*v1alpha1.GPUNode{faulted})
			h.abandon()
			node := h.Node("n")
			node.Labels[v1alpha1.LabelRebootRequired] = "true"
			delete(node.Labels, v1alpha1.LabelReady)
			if err := h.Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			var now *v1alpha1.GPUNode
			for range 4 {
				now = h.step("n")
			}
			labels := h.Node("n").Labels
			if _, requested := labels[v1alpha1.LabelRebootRequired]; requested || labels[v1alpha1.LabelReady] != "true" {
				t.Errorf("labels %v", labels)
			}
			if meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionRebootRequired) || now.Status.Phase != v1alpha1.PhaseReady {
				t.Errorf("status of the node: %+v", now.Status)
			}
			switch s := now.Status; {
			case test.held:
				if len(now.Spec.Remediations) != 1 || len(s.Remediations) != 1 || s.Remediations[0].Reason != remediation.ReasonOff || len(s.History) > 0 {
					t.Errorf("orders %+v, remedies %+v", now.Spec.Remediations, s.Remediations)
				}
			case len(now.Spec.Remediations) > 0 || len(s.Remediations) > 0 || len(s.History) != 1 || s.History[0].Outcome != v1alpha1.OutcomeStopped || s.History[0].Reason != remediation.ReasonOff:
				t.Errorf("orders %+v, remedies %+v, history %+v", now.Spec.Remediations, s.Remediations, s.History)
			}
			writes := h.Writes
			if h.step("n"); h.Writes != writes {
				t.Errorf("%d writes although nothing happened", h.Writes-writes)
			}
		})
	}
}

// TestWithoutAPolicyNothingIsChanged checks that without a ClusterPolicy a node without held GPUs is unchanged.
func TestWithoutAPolicyNothingIsChanged(t *testing.T) {
	h := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))})
	h.abandon()
	if h.step("n"); h.Writes > 0 {
		t.Errorf("%d writes", h.Writes)
	}
}
