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

// Prune removes what the installer made and nobody wants any more: objects of these kinds with its label whose kind and name are not
// kept.
type Prune struct {
	// Kinds are empty lists of the kinds that are looked through.
	Kinds []client.ObjectList
	// Keep reports what stays.
	Keep func(client.Object) bool
}

// Do performs it and returns what was removed, as kind and name.
func (a Prune) Do(ctx context.Context, c Cluster) ([]string, error) {
	var removed []string
	var failed error
	for _, list := range a.Kinds {
		if err := c.Client.List(ctx, list, client.MatchingLabels{render.LabelManagedBy: render.ManagedBy}); err != nil {
			failed = errors.Join(failed, fmt.Errorf("list %T to prune: %w", list, err))
			continue
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok || a.Keep(object) || object.GetDeletionTimestamp() != nil {
				return nil
			}
			if err := c.Client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("remove %s: %w", Title(c, object), err)
			}
			removed = append(removed, Title(c, object))
			return nil
		})
		failed = errors.Join(failed, err)
	}
	return removed, failed
}
