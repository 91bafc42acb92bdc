package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// TestSuggestionsCostNothing checks that in mode Suggest the status has the planned action and the affected pods of the faulted GPU only. Without a
// change nothing is read or written.
func TestSuggestionsCostNothing(t *testing.T) {
	faulted := controllertest.GPU(t, "n", 0)
	objects := append(controllertest.User("training", "n", controllertest.WholeGPU(t, "n", 0)),
		controllertest.User("neighbour", "n", controllertest.WholeGPU(t, "n", 1))...)
	h := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))}, objects...)
	node := h.step("n")
	if len(node.Status.Remediations) != 1 || node.Status.Remediations[0].Step != v1alpha1.RemediationStepSuggested || node.Status.Remediations[0].GPU != faulted.Name() {
		t.Fatalf("remedies are %+v", node.Status.Remediations)
	}
	message := node.Status.Remediations[0].Message
	if !strings.Contains(message, "XID 95") || !strings.Contains(message, "users/training") || strings.Contains(message, "neighbour") {
		t.Errorf("message %q", message)
	}
	if c := node.Status.Conditions; !slices.ContainsFunc(c, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionGPUsHealthy && c.Status == metav1.ConditionFalse
	}) {
		t.Errorf("conditions are %+v", c)
	}
	if len(node.Spec.Remediations) > 0 {
		t.Errorf("it ordered %+v", node.Spec.Remediations)
	}
	events := h.DrainEvents()
	if !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "RemediationSuggested") }) {
		t.Errorf("events are %q", events)
	}
	h.Writes, h.SliceLists = 0, 0
	for range 3 {
		h.step("n")
	}
	if h.Writes+h.SliceLists > 0 {
		t.Errorf("at rest it wrote %d times and read slices %d times", h.Writes, h.SliceLists)
	}
}

// TestBudgetCountsTheCluster checks that remediation.maxParallel limits the GPUs out of service, and that the others report BudgetExhausted.
func TestBudgetCountsTheCluster(t *testing.T) {
	act := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
	h := newTestCluster(t, act, []*v1alpha1.GPUNode{
		controllertest.FaultyNode("n1", controllertest.XIDFault(t, "n1", 0, 95, "Reset"), controllertest.XIDFault(t, "n1", 1, 95, "Reset")), controllertest.FaultyNode("n2", controllertest.XIDFault(t, "n2", 0, 95, "Reset")),
	})
	n1, n2 := h.step("n1"), h.step("n2")
	if len(n1.Spec.Remediations) != 1 || len(n2.Spec.Remediations) != 0 {
		t.Fatalf("out of service are %+v and %+v, want one GPU", n1.Spec.Remediations, n2.Spec.Remediations)
	}
	waits := append(slices.Clone(n1.Status.Remediations), n2.Status.Remediations...)
	waits = slices.DeleteFunc(waits, func(s v1alpha1.RemediationStatus) bool { return s.Reason != remediation.ReasonBudgetExhausted })
	if len(waits) != 2 {
		t.Errorf("%d GPUs wait for a place: %+v", len(waits), waits)
	}
	if waiting := h.r.nodesWaitingForBudget(t.Context(), nil); !slices.Equal(waiting, []string{"n1", "n2"}) {
		t.Errorf("when a place is free, %q are looked at", waiting)
	}
}

// TestValidationExcludesFaultyGPUs checks that a node is validated without its faulted GPUs, and that a node with only faulted GPUs reports it and
// creates no claim.
func TestValidationExcludesFaultyGPUs(t *testing.T) {
	claim := func(h *testCluster) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{}
		if err := h.Get(t.Context(), client.ObjectKey{Namespace: controllertest.Namespace, Name: action.ValidationName("n", action.PartGPUs)}, c); err != nil {
			return nil
		}
		return c
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllertest.Namespace, Labels: map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"}}}
	unproven := func(faults ...v1alpha1.GPUFault) *v1alpha1.GPUNode {
		node := controllertest.FaultyNode("n", faults...)
		node.Status.Validated = nil
		return node
	}
	h := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{unproven(controllertest.XIDFault(t, "n", 0, 79, "Reboot"))}, namespace)
	node, made := h.step("n"), claim(h)
	if made == nil {
		t.Fatalf("no claim was made; the node is %+v", node.Status)
	}
	uuid := controllertest.GPU(t, "n", 0).UUID
	if s := made.Spec.Devices.Requests[0].Exactly.Selectors; len(s) != 1 || !strings.HasPrefix(s[0].CEL.Expression, "!(") || !strings.Contains(s[0].CEL.Expression, uuid) {
		t.Errorf("it selects by %+v", s)
	}
	if m := node.Status.Message; !strings.Contains(m, controllertest.GPU(t, "n", 0).Name()+" (XID 79)") {
		t.Errorf("message of the node: %q", m)
	}
	h = newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{unproven(controllertest.XIDFault(t, "n", 0, 79, "Reboot"), controllertest.XIDFault(t, "n", 1, 79, "Reboot"))}, namespace)
	for range 2 {
		_, _ = h.r.Reconcile(t.Context(), trigger.Request("n"))
	}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
		t.Fatal(err)
	}
	if claim(h) != nil || !strings.Contains(node.Status.Message, "all of its 2 GPUs have faults") {
		t.Errorf("message of the node: %q; a claim was created: %v", node.Status.Message, claim(h) != nil)
	}
}

// TestWhatStopsRemediation checks that a pause and each other operation on the node has its own reason.
func TestWhatStopsRemediation(t *testing.T) {
	paused := map[string]string{v1alpha1.AnnotationPauseRemediation: "true"}
	tests := map[string]struct {
		node   func(*v1alpha1.GPUNode)
		policy map[string]string
		want   string
	}{
		"the GPUNode": {node: func(n *v1alpha1.GPUNode) { n.Annotations = paused }, want: "GPUNode n"},
		"the policy":  {policy: paused, want: "ClusterPolicy default"},
		"a maintenance": {node: func(n *v1alpha1.GPUNode) {
			n.Spec.Maintenance = &v1alpha1.Maintenance{ID: "m", Operation: v1alpha1.OperationRemoval}
		}, want: "(Removal)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
			if test.node != nil {
				test.node(node)
			}
			h := newTestCluster(t, v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}, []*v1alpha1.GPUNode{node})
			if test.policy != nil {
				policy := &v1alpha1.ClusterPolicy{}
				if err := h.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
					t.Fatal(err)
				}
				policy.Annotations = test.policy
				if err := h.Update(t.Context(), policy); err != nil {
					t.Fatal(err)
				}
			}
			got := h.step("n")
			if len(got.Spec.Remediations) > 0 || len(got.Status.Remediations) != 1 || !strings.Contains(got.Status.Remediations[0].Message, test.want) {
				t.Errorf("orders %+v, remedies %+v", got.Spec.Remediations, got.Status.Remediations)
			}
		})
	}
}

// TestSwapAndReset checks that no reset is ordered before a driver change, and that the change waits for an ordered reset.
func TestSwapAndReset(t *testing.T) {
	act := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
	at := func(order v1alpha1.RemediationOrder, reason string) *testCluster {
		faulted := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepReset, reason, 0)
		faulted.Spec.Remediations[0].Step, faulted.Status.Agent.Remediations[0].PreparedClaims = order, 0
		if order == v1alpha1.OrderReset {
			faulted.Status.Remediations[0].Attempts, faulted.Status.Agent.Remediations[0].State = 1, v1alpha1.RemediationStateResetting
		}
		h := newTestCluster(t, act, []*v1alpha1.GPUNode{faulted})
		node := h.Node("n")
		delete(node.Labels, v1alpha1.LabelReady)
		node.Labels[v1alpha1.LabelDriver] = "another"
		if err := h.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		return h
	}
	swaps := func(h *testCluster) bool {
		return h.Get(t.Context(), client.ObjectKey{Name: action.TaintRuleName("n")}, &resourceapi.DeviceTaintRule{}) == nil
	}
	h := at(v1alpha1.OrderHold, remediation.ReasonRemovingMonitors)
	for range 3 {
		if n := h.step("n"); len(n.Spec.Remediations) > 0 && n.Spec.Remediations[0].Step == v1alpha1.OrderReset {
			t.Fatalf("a reset is ordered: %+v, %s", n.Spec.Remediations, n.Status.Message)
		}
	}
	if !swaps(h) {
		t.Error("the swap does not begin")
	}
	h = at(v1alpha1.OrderReset, remediation.ReasonResetting)
	for range 3 {
		n := h.step("n")
		ready := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionReady)
		if swaps(h) || ready == nil || ready.Reason != phase.ReasonResetting || !strings.Contains(ready.Message, "is being reset") || n.Spec.Remediations[0].Step != v1alpha1.OrderReset {
			t.Fatalf("%+v, %+v", n.Spec, n.Status.Conditions)
		}
	}
}

// TestPodThatStaysKeepsTheGPU checks that a GPU with a pod that cannot be evicted stays in service with its other pods, and that the status names the
// pod.
func TestPodThatStaysKeepsTheGPU(t *testing.T) {
	device := controllertest.WholeGPU(t, "n", 0)
	bare := controllertest.User("bare", "n", device)
	bare[0].SetOwnerReferences(nil)
	for _, force := range []bool{false, true} {
		spec := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
		spec.Remediation.Drain.Force = force
		h := newTestCluster(t, spec, []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))}, slices.Concat(controllertest.User("job", "n", device), bare)...)
		node := h.step("n")
		if force {
			if len(node.Spec.Remediations) != 1 {
				t.Errorf("with force: orders %+v, %+v", node.Spec.Remediations, node.Status.Remediations)
			}
			continue
		}
		if len(node.Spec.Remediations) > 0 || len(node.Status.Remediations) != 1 {
			t.Fatalf("orders %+v, %+v", node.Spec.Remediations, node.Status.Remediations)
		}
		if s := node.Status.Remediations[0]; s.Step != v1alpha1.RemediationStepWaiting || s.Reason != remediation.ReasonDrainBlocked || !strings.Contains(s.Message, "users/bare (") ||
			strings.Contains(s.Message, "users/job") {
			t.Errorf("status %+v", s)
		}
	}
}

// TestGPUThatCannotBeSeenStopsNothingElse checks that a GPU that cannot be observed blocks neither the status of its node nor the remediation of another
// GPU.
func TestGPUThatCannotBeSeenStopsNothingElse(t *testing.T) {
	act := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
	device := controllertest.WholeGPU(t, "n1", 0)
	h := newTestCluster(t, act, []*v1alpha1.GPUNode{controllertest.FaultyNode("n1", controllertest.XIDFault(t, "n1", 0, 95, "Reset")), controllertest.FaultyNode("n2", controllertest.XIDFault(t, "n2", 0, 95, "Reset"))}, controllertest.User("job", "n1", device)...)
	h.use(h, interceptor.NewClient(h, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no answer")
		},
	}))
	if _, err := h.r.Reconcile(t.Context(), trigger.Request("n1")); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("unreadable GPU: error %v", err)
	}
	node := &corev1.Node{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "n1"}, node); err != nil {
		t.Fatal(err)
	}
	if node.Labels[v1alpha1.LabelPresent] != "true" {
		t.Errorf("its node has labels %v", node.Labels)
	}
	if n2 := h.step("n2"); len(n2.Spec.Remediations) != 1 {
		t.Errorf("of the other node: %+v", n2.Status.Remediations)
	}
}
