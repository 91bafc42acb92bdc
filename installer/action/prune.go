package action

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/render"
)

// PruneObjects deletes the objects with the installer's label that keep does not report, and returns them as kind and name. kinds are empty lists of the
// kinds that are searched. A kind or object that fails does not stop the others; the errors are joined.
func (c Cluster) PruneObjects(ctx context.Context, kinds []client.ObjectList, keep func(client.Object) bool) ([]string, error) {
	return c.changeObjects(ctx, kinds, func(object client.Object) (bool, error) {
		if keep(object) {
			return false, nil
		}
		if err := c.Client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())}); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("delete %s: %w", c.objectTitle(object), err)
		}
		return true, nil
	})
}

// changeObjects calls change for the objects of the kinds with the installer's label that are not being deleted, and returns those that it changed as kind
// and name. A kind or object that fails does not stop the others; the errors are joined.
func (c Cluster) changeObjects(ctx context.Context, kinds []client.ObjectList, change func(client.Object) (bool, error)) ([]string, error) {
	var changed []string
	var failed error
	for _, list := range kinds {
		if err := c.Client.List(ctx, list, client.MatchingLabels{render.LabelManagedBy: render.ManagedBy}); err != nil {
			failed = errors.Join(failed, fmt.Errorf("list %T: %w", list, err))
			continue
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok || object.GetDeletionTimestamp() != nil {
				return nil
			}
			done, err := change(object)
			if done {
				changed = append(changed, c.objectTitle(object))
			}
			failed = errors.Join(failed, err)
			return nil
		})
		failed = errors.Join(failed, err)
	}
	return changed, failed
}
