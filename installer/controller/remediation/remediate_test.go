package remediation

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// TestValidationNeedsTheDevices checks that a GPU is not validated while its devices cannot be read, and that the error names the node.
func TestValidationNeedsTheDevices(t *testing.T) {
	gpunode := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepValidate, remediation.ReasonValidating, 1)
	c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{gpunode})
	failRequests(c, func(_ string, object any, _ string) bool { _, is := object.(*resourceapi.ResourceSliceList); return is })
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
	node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, c.GPUNode("n"))
	if err != nil {
		t.Fatal(err)
	}
	g := gpuRemediation{decision: remediation.Decision{Action: remediation.Validate}}
	g.GPU, g.Order = controllertest.GPU(t, "n", 0).Name(), &node.Spec.Remediations[0]
	_, err = (&NodeRemediation{Remediator: r, catalog: cat, node: node, gpus: []gpuRemediation{g}}).RemediateNodeGPUs(t.Context())
	if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "list ResourceSlices of node n") {
		t.Errorf("got error %v", err)
	}
	claims := &resourceapi.ResourceClaimList{}
	if err := c.List(t.Context(), claims, client.InNamespace(controllertest.Namespace)); err != nil || len(claims.Items) > 0 {
		t.Errorf("got claims %+v, error %v, want none", claims.Items, err)
	}
}

// TestValidationUsesTheKnownDevices checks that the devices are read once for the validations of a node, and again for a GPU that was not published.
func TestValidationUsesTheKnownDevices(t *testing.T) {
	gpunode := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepValidate, remediation.ReasonValidating, 1)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllertest.Namespace}}
	c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{gpunode}, namespace)
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
	node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, c.GPUNode("n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		gpu   string
		lists int
		fails bool
	}{
		{controllertest.GPU(t, "n", 0).Name(), 1, false}, {controllertest.GPU(t, "n", 1).Name(), 1, false}, {"gpu-lost", 2, true},
	} {
		g := &gpuRemediation{}
		g.GPU, g.Order = test.gpu, &node.Spec.Remediations[0]
		err := (&NodeRemediation{Remediator: r, catalog: cat, node: node}).createGPUValidation(t.Context(), g)
		if (err != nil) != test.fails || c.SliceLists != test.lists {
			t.Errorf("validation %d: error %v, ResourceSlices were listed %d times, want %d", i, err, c.SliceLists, test.lists)
		}
	}
}

// TestRebootLabelFollowsTheCondition checks that the Node has the label that requests a reboot exactly while the GPUNode has the condition. A label that
// cannot be written does not stop the remediation of the GPUs.
func TestRebootLabelFollowsTheCondition(t *testing.T) {
	required := []metav1.Condition{{Type: v1alpha1.ConditionRebootRequired, Status: metav1.ConditionTrue}}
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		label      string
		fails      bool
		noNode     bool
		want       string
	}{
		"requested":           {conditions: required, want: "true"},
		"still requested":     {conditions: required, label: "true", want: "true"},
		"not requested":       {},
		"no longer requested": {label: "true"},
		"cannot be written":   {conditions: required, fails: true},
		"the Node is deleted": {conditions: required, noNode: true},
	} {
		t.Run(name, func(t *testing.T) {
			gpunode := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
			gpunode.Status.Conditions = test.conditions
			c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{gpunode})
			node := c.Node("n")
			if test.label != "" {
				node.Labels[v1alpha1.LabelRebootRequired] = test.label
			}
			if err := c.Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			if test.noNode {
				if err := c.Delete(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			}
			failRequests(c, func(verb string, object any, _ string) bool {
				_, is := object.(*corev1.Node)
				return test.fails && is && verb == "patch"
			})
			_, err := reconcile(t, newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog(), "n")
			if (err != nil) != test.fails || test.fails && !strings.Contains(err.Error(), "label node n: "+errInjected.Error()) {
				t.Errorf("got error %v", err)
			}
			if test.noNode {
				return
			}
			if got := c.Node("n").Labels[v1alpha1.LabelRebootRequired]; got != test.want {
				t.Errorf("the label is %q, want %q", got, test.want)
			}
			if got := c.GPUNode("n").Spec.Remediations; len(got) != 1 {
				t.Errorf("out of service are %+v, want the faulty GPU", got)
			}
		})
	}
}

// TestConflictIsNoObstacle checks that a GPUNode that was changed since it was read is reported to the caller, and is not kept as an obstacle.
func TestConflictIsNoObstacle(t *testing.T) {
	c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))})
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
	n, err := decideNode(t, r, cat, "n")
	if err != nil {
		t.Fatal(err)
	}
	changed := c.GPUNode("n")
	changed.Annotations = map[string]string{"a": "b"}
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if _, err := n.RemediateNodeGPUs(t.Context()); !apierrors.IsConflict(err) {
		t.Errorf("got error %v, want a conflict", err)
	}
	if got := r.Obstacles.Of(report.GPUKey("n", n.gpus[0].GPU)).Text; got != "" || len(c.GPUNode("n").Spec.Remediations) > 0 {
		t.Errorf("the obstacle is %q, out of service are %+v", got, c.GPUNode("n").Spec.Remediations)
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
