package policy

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/render"
)

// driverSet is the DaemonSet of a driver.
func driverSet(digest, image string) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: controllertest.Namespace, Name: "tessera-driver-" + v1alpha1.DriverLabelValue(digest),
		Labels: map[string]string{render.LabelManagedBy: render.ManagedBy, render.LabelName: "tessera-driver"},
	}}
	set.Spec.Template.Annotations = map[string]string{render.AnnotationDigest: digest}
	set.Spec.Template.Spec = corev1.PodSpec{
		NodeSelector: map[string]string{v1alpha1.LabelDriver: v1alpha1.DriverLabelValue(digest)}, Containers: []corev1.Container{{Name: "nvidia-driver-ctr", Image: image}},
	}
	return set
}

// TestKeepsDriverOfADeletedGPUNode keeps the DaemonSet of a driver that a node has by its label alone, because its GPUNode was deleted.
func TestKeepsDriverOfADeletedGPUNode(t *testing.T) {
	t.Parallel()
	const digest = "0123456789abcdef"
	set := driverSet(digest, "registry.example.com:5000/driver:580.95.05-ubuntu24.04")
	other := driverSet("fedcba9876543210", "driver:1")
	policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
		v1alpha1.LabelDriver: v1alpha1.DriverLabelValue(digest), v1alpha1.LabelAgent: "default", v1alpha1.LabelReady: "true",
	}}}
	c := controllertest.NewPlainClient(t, set, other, policy, node)
	r := &Reconciler{Config: Config{Cluster: action.Cluster{Client: c, Namespace: controllertest.Namespace}}}
	cat, err := catalog.NewSource(c, controllertest.Namespace, render.Images{}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := newPass(cat)
	if err := r.readMembers(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if keeps := p.keepsObject(); !keeps(set) || keeps(other) {
		t.Errorf("without the GPUNode: keeps the driver of the node: %t, another: %t", keeps(set), keeps(other))
	}
}

// New pods are assigned to the scheduler while one of its pods is available, which its Deployment reports.
func TestPodsAreAssignedWhileTheSchedulerIsAvailable(t *testing.T) {
	t.Parallel()
	c := controllertest.NewClient(t, freshCluster()...)
	r := newReconciler(t, c)
	reconcile := func(available int32) bool {
		t.Helper()
		deployment := &appsv1.Deployment{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: controllertest.Namespace, Name: render.OperandScheduler}, deployment); err == nil {
			deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, AvailableReplicas: available}
			if err := c.Status().Update(t.Context(), deployment); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		bindings := &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}
		if err := c.List(t.Context(), bindings); err != nil {
			t.Fatal(err)
		}
		return len(bindings.Items) == 1
	}
	for i, step := range []struct {
		available int32
		want      bool
	}{{0, false}, {0, false}, {1, true}, {2, true}, {0, false}, {1, true}} {
		if bound := reconcile(step.available); bound != step.want {
			t.Errorf("reconcile %d with %d available pods: pods are assigned: %v", i, step.available, bound)
		}
	}
}
