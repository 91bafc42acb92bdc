package controller

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/remediation"
	"github.com/tessera-gpu/tessera/installer/render"
)

func Request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// byName asks for the node of the same name, byNode for that of a pod, byLabel for that which an object of the installer is for.
func byName() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{Request(o.GetName())}
	})
}

func byNode() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		// A validation is looked at before it is placed, too.
		if name := action.NodeOf(o); name != "" {
			return []reconcile.Request{Request(name)}
		}
		var all []reconcile.Request
		for _, name := range PodNodes(o) {
			all = append(all, Request(name))
		}
		return all
	})
}

func byLabel() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if name := action.NodeOf(o); name != "" {
			return []reconcile.Request{Request(name)}
		}
		return nil
	})
}

// byClaim asks for the nodes of a claim's devices, where it matters who uses them: out of service, with sick GPUs, and of a validation's own claims.
func (r *nodeReconciler) byClaim() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		if name := action.NodeOf(o); name != "" {
			return []reconcile.Request{Request(name)}
		}
		var all []reconcile.Request
		for _, name := range ClaimNodes(o) {
			node := &v1alpha1.GPUNode{}
			if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node); err == nil && (node.Status.Phase != v1alpha1.PhaseReady || len(node.Status.Remedies) > 0) {
				all = append(all, Request(name))
			}
		}
		return all
	})
}

// ClaimNodes are the nodes of a claim's devices, whatever the drivers are called, but for devices that it only watches.
func ClaimNodes(object client.Object) []string {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return nil
	}
	var nodes []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if name, is := strings.CutSuffix(result.Pool, "-"+result.Driver); is && (result.AdminAccess == nil || !*result.AdminAccess) {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// all asks for every GPU node.
func (r *nodeReconciler) all() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		list := &v1alpha1.GPUNodeList{}
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			klog.FromContext(ctx).Error(err, "List GPUNodes")
			return nil
		}
		var all []reconcile.Request
		for _, node := range list.Items {
			all = append(all, Request(node.Name))
		}
		return all
	})
}

// waiting asks for the nodes with a GPU that waits for a place in the budget.
func (r *nodeReconciler) waiting() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var all []reconcile.Request
		for _, name := range r.waitingNodes(ctx) {
			all = append(all, Request(name))
		}
		return all
	})
}

func (r *nodeReconciler) waitingNodes(ctx context.Context) []string {
	list := &v1alpha1.GPUNodeList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "List GPUNodes")
		return nil
	}
	var names []string
	for _, node := range list.Items {
		if slices.ContainsFunc(node.Status.Remedies, func(s v1alpha1.RemedyStatus) bool { return s.Reason == remediation.ReasonBudget }) {
			names = append(names, node.Name)
		}
	}
	return names
}

// remediationChanged lets through what may leave a place in the budget: a GPUNode whose remedies change, or that goes.
func remediationChanged() predicate.Predicate {
	p := updatesWhere(func(old, now client.Object) bool {
		a, ok := old.(*v1alpha1.GPUNode)
		b, is := now.(*v1alpha1.GPUNode)
		return ok && is && (!equality.Semantic.DeepEqual(a.Spec.Remedies, b.Spec.Remedies) || !equality.Semantic.DeepEqual(a.Status.Remedies, b.Status.Remedies))
	})
	return predicate.Funcs{UpdateFunc: p.Update, CreateFunc: func(event.CreateEvent) bool { return false }}
}

// afterDelay asks for one pass a little later, however much happens until then.
func afterDelay() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue) { q.AddAfter(Request(v1alpha1.ClusterPolicyName), passDelay) }
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, _ event.CreateEvent, q queue) { add(q) },
		UpdateFunc:  func(_ context.Context, _ event.UpdateEvent, q queue) { add(q) },
		DeleteFunc:  func(_ context.Context, _ event.DeleteEvent, q queue) { add(q) },
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { add(q) },
	}
}

// updatesWhere lets updates through that differ in what the function picks.
func updatesWhere(differ func(old, now client.Object) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return differ(e.ObjectOld, e.ObjectNew) }}
}

// Changed lets through what differs in anything that is kept in the cache.
func Changed() predicate.Predicate {
	return updatesWhere(func(old, now client.Object) bool {
		a, ok := old.DeepCopyObject().(client.Object)
		b, is := now.DeepCopyObject().(client.Object)
		if !ok || !is {
			return true
		}
		for _, o := range []client.Object{a, b} {
			o.SetResourceVersion("")
			o.SetManagedFields(nil)
		}
		return !equality.Semantic.DeepEqual(a, b)
	})
}

// Decided lets through what a person decided: the spec, annotations, labels.
func Decided() predicate.Predicate {
	return updatesWhere(func(old, now client.Object) bool {
		return old.GetGeneration() != now.GetGeneration() || !equality.Semantic.DeepEqual(old.GetAnnotations(), now.GetAnnotations())
	})
}

// workloadChanged lets through changes of what an object says, and of whether a Deployment or the discovery is available.
func workloadChanged() predicate.Predicate {
	return updatesWhere(func(old, now client.Object) bool {
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

// ContentsChanged lets through changes of what a ConfigMap or Secret holds.
func ContentsChanged() predicate.Predicate {
	return updatesWhere(func(old, now client.Object) bool {
		switch a := old.(type) {
		case *corev1.ConfigMap:
			b, ok := now.(*corev1.ConfigMap)
			return ok && (!equality.Semantic.DeepEqual(a.Data, b.Data) || !equality.Semantic.DeepEqual(a.BinaryData, b.BinaryData) ||
				!equality.Semantic.DeepEqual(a.Labels, b.Labels) || !equality.Semantic.DeepEqual(a.Annotations, b.Annotations))
		case *corev1.Secret:
			b, ok := now.(*corev1.Secret)
			return ok && !equality.Semantic.DeepEqual(a.Data, b.Data)
		}
		return true
	})
}

// referenced reports whether a policy names the ConfigMap or Secret.
func (r *nodeReconciler) referenced(o client.Object) bool {
	cat, err := readCatalog(context.Background(), r.Client, r.Namespace, r.images)
	if err != nil {
		return false
	}
	kind := "ConfigMap"
	if _, is := o.(*corev1.Secret); is {
		kind = "Secret"
	}
	var specs []v1alpha1.DriverSpec
	for _, d := range cat.Drivers {
		specs = append(specs, d.Spec.DriverSpec)
	}
	return slices.Contains(render.References(cat.Policy.Spec, specs), kind+"/"+o.GetName())
}

func named(is func(client.Object) bool) predicate.Predicate { return predicate.NewPredicateFuncs(is) }

// watchedKinds are the kinds of objects that the installer makes, but for those whose status is looked at.
func (r *policyReconciler) watchedKinds() []client.Object {
	objects := []client.Object{
		&corev1.Service{}, &resourceapi.ResourceClaimTemplate{}, &policyv1.PodDisruptionBudget{}, &nodev1.RuntimeClass{}, &resourceapi.DeviceTaintRule{},
	}
	if r.monitors {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(monitorKind)
		objects = append(objects, u)
	}
	return objects
}
