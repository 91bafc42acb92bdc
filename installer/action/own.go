package action

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// OwnObjects makes the ClusterPolicy the controller of objects that are going to be applied: the garbage collector of Kubernetes deletes them after the
// ClusterPolicy, also when no installer runs.
func OwnObjects(policy *v1alpha1.ClusterPolicy, objects []client.Object) {
	for _, object := range objects {
		object.SetOwnerReferences([]metav1.OwnerReference{policyOwner(policy)})
	}
}

// AdoptObjects makes the ClusterPolicy the controller of those objects with the installer's label that are not owned by it, and returns them as kind and
// name: objects of an older release, and those that an earlier ClusterPolicy owned. Nothing else of an object is written, so no pod restarts. Objects of
// a single node belong to its GPUNode and are skipped. kinds are empty lists of the kinds that are searched, in the cache. A kind or object that fails
// does not stop the others; the errors are joined. An object that changes at the same time is skipped: its change requests another pass.
func (c Cluster) AdoptObjects(ctx context.Context, kinds []client.ObjectList, policy *v1alpha1.ClusterPolicy) ([]string, error) {
	return c.changeObjects(ctx, kinds, func(object client.Object) (bool, error) {
		if object.GetLabels()[LabelNode] != "" || metav1.IsControlledBy(object, policy) {
			return false, nil
		}
		switch err := c.adoptObject(ctx, object, policy); {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("write the owner of %s: %w", c.objectTitle(object), err)
		}
		return true, nil
	})
}

// adoptObject replaces references to other ClusterPolicies and keeps all other owners.
func (c Cluster) adoptObject(ctx context.Context, object client.Object, policy *v1alpha1.ClusterPolicy) error {
	owner := policyOwner(policy)
	old, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no API object", object)
	}
	others := slices.DeleteFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.Kind == owner.Kind && r.APIVersion == owner.APIVersion
	})
	object.SetOwnerReferences(append(others, owner))
	return c.Client.Patch(ctx, object, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Manager))
}

// policyOwner returns the reference to a ClusterPolicy. A deletion in the foreground waits for the objects that it owns.
func policyOwner(policy *v1alpha1.ClusterPolicy) metav1.OwnerReference {
	return *metav1.NewControllerRef(policy, v1alpha1.GroupVersion.WithKind("ClusterPolicy"))
}
