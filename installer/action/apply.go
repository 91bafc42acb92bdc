package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyObjects writes those objects of render that differ from the cluster, by server-side apply, and returns them as kind and name. It reads from the
// cache, so a cluster without differences costs no request. A stated field that another client changed gets the stated value back.
//
// frozen reports objects that, once they exist, are compared and written only for their pod spec: driver DaemonSets. An object that cannot be
// written does not stop the others; the errors are joined.
func (c Cluster) ApplyObjects(ctx context.Context, objects []client.Object, frozen func(client.Object) bool) ([]string, error) {
	var written []string
	var failed error
	for _, object := range objects {
		wrote, err := c.applyObject(ctx, object, frozen(object))
		failed = errors.Join(failed, err)
		if wrote {
			written = append(written, c.objectTitle(object))
		}
	}
	return written, failed
}

func (c Cluster) applyObject(ctx context.Context, rendered client.Object, frozen bool) (wrote bool, err error) {
	want, ok := rendered.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("copy %s: %T is no API object", rendered.GetName(), rendered)
	}
	have, err := c.emptyObject(want)
	if err != nil {
		return false, err
	}
	switch err := c.Client.Get(ctx, client.ObjectKeyFromObject(want), have); {
	case err == nil && matchesRendered(want, have, frozen):
		return false, nil
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("read %s: %w", c.objectTitle(want), err)
	}
	data, err := json.Marshal(want)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", c.objectTitle(want), err)
	}
	err = c.Client.Patch(ctx, want, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(Manager), client.ForceOwnership)
	if apierrors.IsInvalid(err) && have.GetUID() != "" {
		// If another client changed the key of a list element, apply adds a second element with the stated key, and the API server may reject the two
		// together. A merge patch replaces the whole list.
		if c.Client.Patch(ctx, want, client.RawPatch(types.MergePatchType, data), client.FieldOwner(Manager)) == nil {
			err = nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("apply %s: %w", c.objectTitle(want), err)
	}
	return true, nil
}

// emptyObject returns a new object of the same kind, to read into.
func (c Cluster) emptyObject(object client.Object) (client.Object, error) {
	kind := object.GetObjectKind().GroupVersionKind()
	if _, is := object.(*unstructured.Unstructured); is {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		return u, nil
	}
	created, err := c.Client.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("create an empty %s: %w", kind.Kind, err)
	}
	empty, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("create an empty %s: %T is no API object", kind.Kind, created)
	}
	return empty, nil
}

// objectTitle returns kind and name of an object for messages.
func (c Cluster) objectTitle(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if found, err := c.Client.GroupVersionKindFor(object); err == nil {
		kind = found.Kind
	}
	return kind + " " + object.GetName()
}
