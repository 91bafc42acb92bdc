package node

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// TestBudgetBeforeTheCacheShowsIt checks that two nodes with simultaneous faults do not both start a remediation while the cache lacks the first start,
// also if the response of the write was an error. After the next observation the cached state counts.
func TestBudgetBeforeTheCacheShowsIt(t *testing.T) {
	act := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
	h := newTestCluster(t, act, []*v1alpha1.GPUNode{controllertest.FaultyNode("n1", controllertest.XIDFault(t, "n1", 0, 95, "Reset")), controllertest.FaultyNode("n2")})
	stale := &v1alpha1.GPUNodeList{}
	if err := h.List(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	lags := true
	h.use(interceptor.NewClient(h.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if nodes, is := list.(*v1alpha1.GPUNodeList); is && lags {
				stale.DeepCopyInto(nodes)
				return nil
			}
			return c.List(ctx, list, options...)
		},
	}), h)
	n1, n2 := h.step("n1"), h.step("n2")
	n2.Status.Agent.Faults = []v1alpha1.GPUFault{controllertest.XIDFault(t, "n2", 0, 95, "Reset")} // and worse off than the other: it would be the first
	n2.Status.Agent.Faults[0].Since = metav1.NewTime(time.Now().Add(-24 * time.Hour))
	if err := h.Status().Update(t.Context(), n2); err != nil {
		t.Fatal(err)
	}
	n2 = h.step("n2")
	if len(n1.Spec.Remediations) != 1 || len(n2.Spec.Remediations) != 0 || n2.Status.Remediations[0].Reason != remediation.ReasonBudgetExhausted {
		t.Fatalf("out of service are %+v and %+v, want one GPU; the other %+v", n1.Spec.Remediations, n2.Spec.Remediations, n2.Status.Remediations)
	}
	lags = false
	if err := h.Delete(t.Context(), n1); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), h.Node("n1")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.r.Reconcile(t.Context(), trigger.Request("n1")); err != nil {
		t.Fatal(err)
	}
	if n2 = h.step("n2"); len(n2.Spec.Remediations) != 1 {
		t.Errorf("a place is free, and the other GPU is not taken out: %+v", n2.Status.Remediations)
	}
}

// TestBudgetOfANodeThatCannotBeSeen checks that a node that cannot be read keeps the budget places of its GPUs that are out of service.
func TestBudgetOfANodeThatCannotBeSeen(t *testing.T) {
	act := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
	h := newTestCluster(t, act, []*v1alpha1.GPUNode{controllertest.FaultyNode("n2", controllertest.XIDFault(t, "n2", 0, 95, "Reset")), controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonDraining, 0)})
	h.use(interceptor.NewClient(h.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, o client.Object, options ...client.GetOption) error {
			if _, is := o.(*corev1.Node); is && key.Name == "n" {
				return context.DeadlineExceeded
			}
			return c.Get(ctx, key, o, options...)
		},
	}), h)
	if n2 := h.step("n2"); len(n2.Spec.Remediations) > 0 {
		t.Errorf("it is taken out: %+v", n2.Status.Remediations)
	}
}
