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
	var deleted []string
	var failed error
	for _, list := range kinds {
		if err := c.Client.List(ctx, list, client.MatchingLabels{render.LabelManagedBy: render.ManagedBy}); err != nil {
			failed = errors.Join(failed, fmt.Errorf("list %T: %w", list, err))
			continue
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok || keep(object) || object.GetDeletionTimestamp() != nil {
				return nil
			}
			if err := c.Client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete %s: %w", c.objectTitle(object), err)
			}
			deleted = append(deleted, c.objectTitle(object))
			return nil
		})
		failed = errors.Join(failed, err)
	}
	return deleted, failed
}
