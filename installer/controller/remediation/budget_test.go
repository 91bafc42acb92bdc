package remediation

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// TestOtherNodesCountTowardTheBudget checks that with maxParallel 1 a GPU is taken out of service only if no GPU of another node has the place or
// precedes it.
func TestOtherNodesCountTowardTheBudget(t *testing.T) {
	older := func() *v1alpha1.GPUNode {
		node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
		node.Status.Agent.Faults[0].Since = metav1.NewTime(time.Now().Add(-time.Hour)).Rfc3339Copy()
		return node
	}
	inStep := func(step v1alpha1.RemediationStep, reason, boot string) *v1alpha1.GPUNode {
		node := controllertest.NodeInRemediation(t, step, reason, 0)
		node.Status.Remediations[0].BootID = boot
		return node
	}
	static := controllertest.User("static", "n", controllertest.WholeGPU(t, "n", 0))
	static[0].SetAnnotations(map[string]string{corev1.MirrorPodAnnotationKey: "x"})
	noNode := func(object any, name string) bool { _, is := object.(*corev1.Node); return is && name == "n" }
	noValidation := func(_ any, name string) bool {
		return name == action.ValidationName("n", action.GPUValidationPart(controllertest.GPU(t, "n", 0).Name()))
	}
	for name, test := range map[string]struct {
		other *v1alpha1.GPUNode
		users []client.Object
		fails func(object any, name string) bool
		// waits is whether the GPU waits for a place.
		waits bool
	}{
		"no fault":                           {other: controllertest.FaultyNode("n")},
		"a GPU out of service":               {other: inStep(v1alpha1.RemediationStepDrain, remediation.ReasonDraining, ""), waits: true},
		"a GPU that waits for a reboot":      {other: inStep(v1alpha1.RemediationStepRebootRequested, remediation.ReasonResetInsufficient, "b")},
		"an older fault":                     {other: older(), waits: true},
		"an older fault and a static pod":    {other: older(), users: static},
		"an older fault, GPU not readable":   {other: older(), fails: noValidation},
		"an older fault, Node not readable":  {other: older(), fails: noNode},
		"out of service, GPU not readable":   {other: inStep(v1alpha1.RemediationStepDrain, remediation.ReasonDraining, ""), fails: noValidation, waits: true},
		"out of service, Node not readable":  {other: inStep(v1alpha1.RemediationStepDrain, remediation.ReasonDraining, ""), fails: noNode, waits: true},
		"waits for reboot, no readable Node": {other: inStep(v1alpha1.RemediationStepRebootRequested, remediation.ReasonResetInsufficient, "b"), fails: noNode},
	} {
		t.Run(name, func(t *testing.T) {
			own := controllertest.FaultyNode("m", controllertest.XIDFault(t, "m", 0, 95, "Reset"))
			c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{own, test.other}, test.users...)
			failRequests(c, func(verb string, object any, name string) bool {
				return verb == "get" && test.fails != nil && test.fails(object, name)
			})
			list, err := reconcile(t, newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog(), "m")
			if err != nil || len(list) != 1 {
				t.Fatalf("got %+v, error %v", list, err)
			}
			if waits := list[0].Reason == remediation.ReasonBudgetExhausted; waits != test.waits || (len(c.GPUNode("m").Spec.Remediations) == 0) != test.waits {
				t.Errorf("got %+v and orders %+v, want waiting %t", list[0], c.GPUNode("m").Spec.Remediations, test.waits)
			}
		})
	}
}

// TestPlaceIsKeptUntilTheCacheShowsTheOrder checks that a GPU keeps the place that was decided for it although the cache has no order yet, also against an
// older fault, and that the place is free when the node is gone.
func TestPlaceIsKeptUntilTheCacheShowsTheOrder(t *testing.T) {
	older := controllertest.FaultyNode("m")
	c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset")), older})
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
	n, err := decideNode(t, r, cat, "n")
	if err != nil || n.gpus[0].decision.Action != remediation.Direct {
		t.Fatalf("decided %+v, error %v", n.gpus, err)
	}
	older = c.GPUNode("m")
	older.Status.Agent.Faults = []v1alpha1.GPUFault{controllertest.XIDFault(t, "m", 0, 95, "Reset")}
	older.Status.Agent.Faults[0].Since = metav1.NewTime(time.Now().Add(-time.Hour)).Rfc3339Copy()
	if err := c.Status().Update(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if m, err := decideNode(t, r, cat, "m"); err != nil || m.Statuses()[0].Reason != remediation.ReasonBudgetExhausted {
		t.Fatalf("got %+v, error %v, want a GPU that waits for the budget", m.Statuses(), err)
	}
	if err := c.Delete(t.Context(), c.GPUNode("n")); err != nil {
		t.Fatal(err)
	}
	r.RemoveNode("n")
	if m, err := decideNode(t, r, cat, "m"); err != nil || m.gpus[0].decision.Action != remediation.Direct {
		t.Errorf("decided %+v, error %v, want the GPU to get the free place", m.gpus, err)
	}
}

// TestRemovedNodeIsReadAgain checks that the devices of a node are read once, and again for a node of the same name after the first one is gone.
func TestRemovedNodeIsReadAgain(t *testing.T) {
	node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
	c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{node}, controllertest.User("training", "n", controllertest.WholeGPU(t, "n", 0))...)
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			r.RemoveNode("n")
		}
		if _, err := decideNode(t, r, cat, "n"); err != nil {
			t.Fatal(err)
		}
		if c.SliceLists != want {
			t.Errorf("decision %d: ResourceSlices were listed %d times, want %d", i, c.SliceLists, want)
		}
	}
}

// TestBudgetNeedsTheGPUNodes checks that no GPU is taken out of service while the GPUNodes cannot be listed. The budget is released with the error. A mode
// that takes none out does not need the list.
func TestBudgetNeedsTheGPUNodes(t *testing.T) {
	for mode, fails := range map[v1alpha1.RemediationMode]bool{v1alpha1.RemediationAct: true, v1alpha1.RemediationSuggest: false} {
		t.Run(string(mode), func(t *testing.T) {
			spec := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: mode}}
			c := controllertest.NewCluster(t, spec, []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))})
			failRequests(c, func(_ string, object any, _ string) bool { _, is := object.(*v1alpha1.GPUNodeList); return is })
			r, cat := newRemediator(t, c), controllertest.Policies{Spec: spec}.Catalog()
			for range 2 {
				n, err := decideNode(t, r, cat, "n")
				if (err != nil) != fails || fails && (!errors.Is(err, errInjected) || !strings.HasPrefix(err.Error(), "list GPUNodes: ")) {
					t.Fatalf("got error %v, want one: %t", err, fails)
				}
				if !fails && n.Statuses()[0].Step != v1alpha1.RemediationStepSuggested {
					t.Errorf("got %+v", n.Statuses())
				}
			}
		})
	}
}
