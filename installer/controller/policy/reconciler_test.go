package policy

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/render"
)

// newReconciler returns a Reconciler of a cluster with a release's images.
func newReconciler(t *testing.T, c client.Client) *Reconciler {
	t.Helper()
	metrics, err := report.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	images := render.Images{
		Node: "node:v1", Scheduler: "scheduler:v1", Driver: "driver", DriverVersion: "580.1", DCGM: "dcgm:v1", DCGMExporter: "exporter:v1",
	}
	return New(Config{
		Cluster: action.Cluster{Client: c, Live: c, Namespace: controllertest.Namespace}, Catalogs: catalog.NewSource(c, controllertest.Namespace, images),
		Events: report.Recorder{Events: events.NewFakeRecorder(100)}, Metrics: metrics,
	})
}

// freshCluster has a ClusterPolicy and one node that was never in service.
func freshCluster() []client.Object {
	return []client.Object{
		&v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName, Generation: 1}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllertest.Namespace}},
		controllertest.ServingNode("n"),
		&v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.GPUNodeStatus{
			Hardware: &v1alpha1.HardwareStatus{BootID: "b", GPUs: 2, OS: "ubuntu24.04", Kernel: "6.8", Architecture: "amd64"},
		}},
	}
}

// One pass writes the objects, grants a fresh node its driver, writes the status of the policy, and deletes objects that are not rendered any more.
func TestReconcilePolicy(t *testing.T) {
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: controllertest.Namespace, Name: "old", Labels: map[string]string{render.LabelManagedBy: render.ManagedBy},
	}}
	c := controllertest.NewClient(t, append(freshCluster(), old)...)
	r := newReconciler(t, c)
	for range 2 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	node := &v1alpha1.GPUNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
		t.Fatal(err)
	}
	if node.Spec.Driver == nil || node.Spec.Driver.Digest == "" || node.Spec.AgentPool != "default" {
		t.Errorf("the node is granted %+v", node.Spec)
	}
	sets := &appsv1.DaemonSetList{}
	if err := c.List(t.Context(), sets, client.MatchingLabels{render.LabelName: render.OperandDriver}); err != nil || len(sets.Items) != 1 {
		t.Errorf("%d driver DaemonSets, error %v", len(sets.Items), err)
	}
	policy := &v1alpha1.ClusterPolicy{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
		t.Fatal(err)
	}
	if policy.Status.Nodes.Total != 1 || policy.Status.ObservedGeneration != 1 || len(policy.Status.Conditions) != 4 {
		t.Errorf("the status is %+v", policy.Status)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), old); !apierrors.IsNotFound(err) {
		t.Errorf("an object that is not rendered: got error %v", err)
	}
}

// Without a ClusterPolicy nothing is written. A conflict is tried again soon and is no error; another error is one, and is in the status where that can be
// written.
func TestReconcilePolicyErrors(t *testing.T) {
	empty := newReconciler(t, controllertest.NewClient(t))
	if result, err := empty.Reconcile(t.Context(), ctrl.Request{}); err != nil || result != (ctrl.Result{}) {
		t.Errorf("without a policy: %+v, error %v", result, err)
	}
	refused, conflict := errors.New("refused"), apierrors.NewConflict(schema.GroupResource{}, "n", nil)
	for name, test := range map[string]struct {
		list  func(client.ObjectList) error
		patch func(client.Object) error
		fails bool
		after bool
		fault string
	}{
		"nodes cannot be listed": {list: func(l client.ObjectList) error {
			if _, is := l.(*corev1.NodeList); is {
				return refused
			}
			return nil
		}, fails: true},
		"policies cannot be listed": {list: func(l client.ObjectList) error {
			if _, is := l.(*v1alpha1.NVIDIADriverList); is {
				return refused
			}
			return nil
		}, fails: true},
		"a node changed meanwhile": {patch: func(o client.Object) error {
			if _, is := o.(*v1alpha1.GPUNode); is {
				return conflict
			}
			return nil
		}, after: true},
		"objects cannot be written": {patch: func(o client.Object) error {
			if _, is := o.(*appsv1.DaemonSet); is {
				return refused
			}
			return nil
		}, fails: true, fault: "ObjectsNotWritten"},
	} {
		t.Run(name, func(t *testing.T) {
			base := controllertest.NewClient(t, freshCluster()...)
			r := newReconciler(t, interceptor.NewClient(base, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if test.list != nil {
						if err := test.list(list); err != nil {
							return err
						}
					}
					return c.List(ctx, list, options...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
					if test.patch != nil {
						if err := test.patch(o); err != nil {
							return err
						}
					}
					return c.Patch(ctx, o, patch, options...)
				},
			}))
			result, err := r.Reconcile(t.Context(), ctrl.Request{})
			if (err != nil) != test.fails || (result.RequeueAfter == trigger.ConflictDelay) != test.after {
				t.Errorf("%+v, error %v", result, err)
			}
			policy := &v1alpha1.ClusterPolicy{}
			if err := base.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
				t.Fatal(err)
			}
			reason := ""
			for _, c := range policy.Status.Conditions {
				if c.Type == v1alpha1.ConditionDegraded && c.Status == metav1.ConditionTrue {
					reason = c.Reason
				}
			}
			if reason != test.fault {
				t.Errorf("Degraded because of %q, want %q", reason, test.fault)
			}
		})
	}
}
