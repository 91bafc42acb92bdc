package policy

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/render"
)

// passDelay is the time after a change in which further changes join the same reconcile.
const passDelay = 100 * time.Millisecond

// SetUp registers the reconciler with its watches: everything that the objects of the cluster, the rollouts and the statuses of policies depend on.
func (r *Reconciler) SetUp(mgr ctrl.Manager) error {
	b := builder.ControllerManagedBy(mgr).Named("policy").
		Watches(&v1alpha1.ClusterPolicy{}, afterDelay(), builder.WithPredicates(trigger.Decided())).
		Watches(&v1alpha1.NVIDIADriver{}, afterDelay(), builder.WithPredicates(trigger.Decided())).
		Watches(&v1alpha1.GPUNode{}, afterDelay()).
		Watches(&corev1.Node{}, afterDelay(), builder.WithPredicates(trigger.Changed())).
		Watches(&corev1.ConfigMap{}, afterDelay(), builder.WithPredicates(trigger.ContentsChanged())).
		Watches(&corev1.Secret{}, afterDelay(), builder.WithPredicates(trigger.ContentsChanged())).
		Watches(&appsv1.DaemonSet{}, afterDelay(), builder.WithPredicates(workloadChanged())).
		Watches(&appsv1.Deployment{}, afterDelay(), builder.WithPredicates(workloadChanged()))
	for _, object := range r.watchedKinds() {
		b = b.Watches(object, afterDelay(), builder.WithPredicates(trigger.Changed()))
	}
	return b.Complete(r)
}

// watchedKinds returns the kinds of objects that the installer creates, except DaemonSets and Deployments, whose updates are filtered.
func (r *Reconciler) watchedKinds() []client.Object {
	objects := []client.Object{
		&corev1.Service{}, &resourceapi.ResourceClaimTemplate{}, &policyv1.PodDisruptionBudget{}, &nodev1.RuntimeClass{},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{},
	}
	if !r.Cluster.SliceTaints {
		objects = append(objects, &resourceapi.DeviceTaintRule{})
	}
	if r.ServiceMonitors {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(MonitorKind)
		objects = append(objects, u)
	}
	return objects
}

// afterDelay requests one reconcile after passDelay, however many changes there are until then.
func afterDelay() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue) { q.AddAfter(trigger.Request(v1alpha1.ClusterPolicyName), passDelay) }
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, _ event.CreateEvent, q queue) { add(q) },
		UpdateFunc:  func(_ context.Context, _ event.UpdateEvent, q queue) { add(q) },
		DeleteFunc:  func(_ context.Context, _ event.DeleteEvent, q queue) { add(q) },
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { add(q) },
	}
}

// workloadChanged passes updates of a workload's spec, annotations and labels, and of the status fields that the conditions of a policy depend on.
func workloadChanged() predicate.Predicate {
	return trigger.UpdatesWhere(func(old, now client.Object) bool {
		if old.GetGeneration() != now.GetGeneration() || !equality.Semantic.DeepEqual(old.GetAnnotations(), now.GetAnnotations()) ||
			!equality.Semantic.DeepEqual(old.GetLabels(), now.GetLabels()) {
			return true
		}
		switch a := old.(type) {
		case *appsv1.Deployment:
			b, ok := now.(*appsv1.Deployment)
			return ok && (a.Status.AvailableReplicas != b.Status.AvailableReplicas || a.Status.ObservedGeneration != b.Status.ObservedGeneration)
		case *appsv1.DaemonSet:
			b, ok := now.(*appsv1.DaemonSet)
			return ok && (a.Status.ObservedGeneration != b.Status.ObservedGeneration || a.Name == render.OperandDiscovery &&
				(a.Status.DesiredNumberScheduled != b.Status.DesiredNumberScheduled || a.Status.NumberAvailable != b.Status.NumberAvailable))
		}
		return false
	})
}
