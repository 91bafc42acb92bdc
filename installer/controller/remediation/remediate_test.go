package remediation

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/controller/validation"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// Each action is performed on its object. A GPU that fails does not stop the others, and why it failed is kept.
func TestEveryDecisionIsPerformed(t *testing.T) {
	proof := func(t *testing.T) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: action.ValidationName("n", action.GPUValidationPart(controllertest.GPU(t, "n", 0).Name()))}
	}
	tests := map[remediation.Action]struct {
		decision remediation.Decision
		fails    string
		done     func(*testing.T, *controllertest.Cluster) bool
	}{
		remediation.Wait: {decision: remediation.Decision{After: time.Minute}, done: func(_ *testing.T, c *controllertest.Cluster) bool { return len(c.GPUNode("n").Spec.Remediations) == 1 }},
		remediation.Direct: {decision: remediation.Decision{Order: v1alpha1.Remediation{GPU: "gpu-b", ID: "2"}}, done: func(_ *testing.T, c *controllertest.Cluster) bool {
			return len(c.GPUNode("n").Spec.Remediations) == 2
		}},
		remediation.Evict: {done: func(_ *testing.T, c *controllertest.Cluster) bool { return len(c.GPUNode("n").Spec.Remediations) == 1 }},
		remediation.Validate: {done: func(t *testing.T, c *controllertest.Cluster) bool {
			claim := &resourceapi.ResourceClaim{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: controllertest.Namespace, Name: proof(t).Name}, claim); err != nil {
				return false
			}
			selectors := claim.Spec.Devices.Requests[0].Exactly.Selectors
			return len(selectors) == 1 && strings.HasSuffix(selectors[0].CEL.Expression, `== "`+controllertest.GPU(t, "n", 0).UUID+`"`)
		}},
		remediation.EndValidate: {done: func(t *testing.T, c *controllertest.Cluster) bool {
			return c.Get(t.Context(), client.ObjectKey{Namespace: controllertest.Namespace, Name: proof(t).Name}, &corev1.Pod{}) != nil
		}},
		remediation.Release: {decision: remediation.Decision{Record: &v1alpha1.RemediationRecord{ID: "one", Outcome: v1alpha1.OutcomeFailed}}, done: func(_ *testing.T, c *controllertest.Cluster) bool {
			n := c.GPUNode("n")
			return len(n.Spec.Remediations) == 0 && len(n.Status.History) == 1 && slices.ContainsFunc(c.DrainEvents(), func(e string) bool { return strings.HasPrefix(e, "Warning RemediationFailed") })
		}},
		"Dance": {fails: "no such action", done: func(*testing.T, *controllertest.Cluster) bool { return true }},
	}
	for name, test := range tests {
		t.Run(string(name), func(t *testing.T) {
			more := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllertest.Namespace}}}
			if name == remediation.EndValidate {
				more = append(more, &corev1.Pod{ObjectMeta: proof(t)})
			}
			c := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, "r", 0)}, more...)
			r, cat := newRemediator(t, c), controllertest.Policies{}.Catalog()
			node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, c.GPUNode("n"))
			if err != nil {
				t.Fatal(err)
			}
			gpu := gpuRemediation{decision: test.decision}
			gpu.decision.Action, gpu.GPU, gpu.Order = name, controllertest.GPU(t, "n", 0).Name(), &node.Spec.Remediations[0]
			other := gpuRemediation{failed: errors.New("cannot be observed")}
			other.GPU, other.decision.Action = "other", remediation.Wait
			n := &NodeRemediation{Remediator: r, catalog: cat, node: node, gpus: []gpuRemediation{other, gpu}}
			after, err := n.RemediateNodeGPUs(t.Context())
			if err == nil || !strings.Contains(err.Error(), "cannot be observed") || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("got error %v", err)
			}
			if !test.done(t, c) || after != test.decision.After {
				t.Errorf("it is not done: %+v, again after %s", c.GPUNode("n"), after)
			}
			if got := r.Obstacles.Of(report.GPUKey("n", gpu.GPU)).Text; !strings.Contains(got, test.fails) || (got != "") != (test.fails != "") {
				t.Errorf("the obstacle is %q", got)
			}
			if r.Obstacles.Of(report.GPUKey("n", "other")).Text == "" {
				t.Error("why the other GPU failed is not kept")
			}
		})
	}
}

// A GPU that its agent does not publish cannot be validated.
func TestValidationOfAnUnpublishedGPU(t *testing.T) {
	c := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n")})
	r, cat := newRemediator(t, c), controllertest.Policies{}.Catalog()
	node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, c.GPUNode("n"))
	if err != nil {
		t.Fatal(err)
	}
	g := &gpuRemediation{}
	g.GPU, g.Order = "gpu-unknown", &v1alpha1.Remediation{ID: "i"}
	err = (&NodeRemediation{Remediator: r, catalog: cat, node: node}).createGPUValidation(t.Context(), g)
	if err == nil || !strings.Contains(err.Error(), "gpu-unknown") {
		t.Errorf("got error %v", err)
	}
}

// Steps that people wait for have Events, others none.
func TestStepEvents(t *testing.T) {
	for _, test := range []struct {
		before, now v1alpha1.RemediationStep
		reason      string
	}{
		{"", v1alpha1.RemediationStepSuggested, "RemediationSuggested"}, {"", v1alpha1.RemediationStepWaiting, ""}, {v1alpha1.RemediationStepWaiting, v1alpha1.RemediationStepHold, "RemediationStarted"},
		{v1alpha1.RemediationStepHold, v1alpha1.RemediationStepDrain, ""}, {v1alpha1.RemediationStepDrain, v1alpha1.RemediationStepReset, "GPUDrained"},
		{v1alpha1.RemediationStepHold, v1alpha1.RemediationStepReset, "GPUDrained"}, {v1alpha1.RemediationStepValidate, v1alpha1.RemediationStepReset, ""},
		{v1alpha1.RemediationStepReset, v1alpha1.RemediationStepValidate, "GPUReset"}, {v1alpha1.RemediationStepDrain, v1alpha1.RemediationStepValidate, ""},
		{v1alpha1.RemediationStepReset, v1alpha1.RemediationStepRebootRequested, "RebootRequired"}, {v1alpha1.RemediationStepReset, v1alpha1.RemediationStepReplace, "ReplacementRequired"},
		{v1alpha1.RemediationStepValidate, v1alpha1.RemediationStepRestore, ""},
	} {
		if reason, _ := stepEvent(v1alpha1.RemediationStatus{Step: test.before}, v1alpha1.RemediationStatus{Step: test.now}); reason != test.reason {
			t.Errorf("%s to %s: got %q, want %q", test.before, test.now, reason, test.reason)
		}
	}
}

// Objects of the validation of another order, and those that are being deleted, are left over.
func TestGPUValidation(t *testing.T) {
	meta := metav1.ObjectMeta{Annotations: map[string]string{action.AnnotationBarrier: "one"}}
	pod := func(p corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: p}}
	}
	leaving := pod(corev1.PodRunning)
	leaving.DeletionTimestamp = new(metav1.Now())
	claim, order := &resourceapi.ResourceClaim{ObjectMeta: meta}, &v1alpha1.Remediation{ID: "one"}
	for name, test := range map[string]struct {
		objects validation.Objects
		order   *v1alpha1.Remediation
		want    phase.Validation
		started bool
	}{
		"none":             {validation.Objects{}, order, phase.Validation{}, false},
		"a claim":          {validation.Objects{Claim: claim}, order, phase.Validation{State: phase.ValidationRunning, Begun: true}, false},
		"without an order": {validation.Objects{Claim: claim}, nil, phase.Validation{Leftover: true}, false},
		"of another order": {validation.Objects{Pod: pod(corev1.PodRunning)}, &v1alpha1.Remediation{ID: "two"}, phase.Validation{Leftover: true}, false},
		"leaving":          {validation.Objects{Pod: leaving}, order, phase.Validation{Leftover: true}, false},
		"pending":          {validation.Objects{Pod: pod(corev1.PodPending)}, order, phase.Validation{State: phase.ValidationRunning}, false},
		"running":          {validation.Objects{Pod: pod(corev1.PodRunning)}, order, phase.Validation{State: phase.ValidationRunning}, true},
		"passed":           {validation.Objects{Pod: pod(corev1.PodSucceeded)}, order, phase.Validation{State: phase.ValidationPassed, Leftover: true}, true},
	} {
		if got, started := gpuValidation(test.objects, test.order); got != test.want || started != test.started {
			t.Errorf("%s: got %+v, started %t", name, got, started)
		}
	}
}

// Updates of remedies and deletions may free a place in the budget; a GPU that waits for a reboot has none.
func TestBudgetChanged(t *testing.T) {
	plain, held := controllertest.FaultyNode("n"), controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonBudgetExhausted, 0)
	p := BudgetChanged()
	if p.Create(event.CreateEvent{Object: plain}) || !p.Delete(event.DeleteEvent{Object: plain}) || p.Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: plain}) ||
		!p.Update(event.UpdateEvent{ObjectOld: held, ObjectNew: plain}) || p.Update(event.UpdateEvent{ObjectOld: &corev1.Node{}, ObjectNew: &corev1.Node{}}) {
		t.Error("the wrong changes pass")
	}
	if !WaitsForBudget(held) || WaitsForBudget(plain) {
		t.Error("the wrong node waits for the budget")
	}
	if got := heldCandidates(held); len(got) != 1 || !got[0].Begun {
		t.Errorf("a held GPU: %+v", got)
	}
	held.Status.Remediations[0].BootID = "b"
	if got := heldCandidates(held); len(got) != 0 {
		t.Errorf("a GPU that waits for a reboot: %+v", got)
	}
}
