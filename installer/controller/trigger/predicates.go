// Package trigger decides when a reconciler runs: which changes of objects request it, and after what time it runs again.
package trigger

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ConflictDelay is the time after which a reconcile runs again when a write found a newer version of its object. The cache has that version by then.
const ConflictDelay = 200 * time.Millisecond

const (
	// ReconcileTimeout ends the context of a reconcile, which makes requests to the API server and waits for nothing else: a drain, for example, takes many
	// reconciles. The largest, the policy's of 5,000 nodes, makes as many requests, 50 a second.
	ReconcileTimeout = 5 * time.Minute
	// HangLimit is after how long a reconcile hangs: its context has ended, and it has not.
	HangLimit = 2 * ReconcileTimeout
)

// Request returns the request for an object without a namespace.
func Request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// Sooner returns the shorter of two times after which a reconcile runs again. Zero means never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// UpdatesWhere passes creations, deletions, and the updates that differ reports.
func UpdatesWhere(differ func(old, now client.Object) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return differ(e.ObjectOld, e.ObjectNew) }}
}

// Changed passes updates of anything that the cache keeps, except resource version and managed fields.
func Changed() predicate.Predicate {
	return UpdatesWhere(func(old, now client.Object) bool {
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

// Decided passes updates of the spec and of annotations, which are what people edit in policies.
func Decided() predicate.Predicate {
	return UpdatesWhere(func(old, now client.Object) bool {
		return old.GetGeneration() != now.GetGeneration() || !equality.Semantic.DeepEqual(old.GetAnnotations(), now.GetAnnotations())
	})
}

// ContentsChanged passes updates of what a ConfigMap or Secret contains.
func ContentsChanged() predicate.Predicate {
	return UpdatesWhere(func(old, now client.Object) bool {
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
