package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/render"
)

// Apply writes objects of render, which carry kind, label and hash: those that differ from what is in the cluster, and nothing else: a cluster that is as it should be costs no request. What
// others changed in fields that an object states is put back.
type Apply struct {
	Objects []client.Object
	// Frozen reports objects that must not change once they exist but for what they run: driver DaemonSets. Labels and annotations of theirs
	// stay as they were.
	Frozen func(client.Object) bool
}

// Do performs it and returns what was written, as kind and name. An object that cannot be written does not keep others from being written.
func (a Apply) Do(ctx context.Context, c Cluster) ([]string, error) {
	var written []string
	var failed error
	for _, object := range a.Objects {
		wrote, err := a.one(ctx, c, object)
		failed = errors.Join(failed, err)
		if wrote {
			written = append(written, Title(c, object))
		}
	}
	return written, failed
}

// one writes an object where it differs.
func (a Apply) one(ctx context.Context, c Cluster, rendered client.Object) (bool, error) {
	want, ok := rendered.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("copy %s: %T is no object", rendered.GetName(), rendered)
	}
	have, err := blank(c, want)
	if err != nil {
		return false, err
	}
	switch err := c.Client.Get(ctx, client.ObjectKeyFromObject(want), have); {
	case err == nil && a.same(want, have):
		return false, nil
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("read %s: %w", Title(c, want), err)
	}
	data, err := json.Marshal(want)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", Title(c, want), err)
	}
	err = c.Client.Patch(ctx, want, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(Manager), client.ForceOwnership)
	if apierrors.IsInvalid(err) && have.GetUID() != "" {
		// Who changed the key of an element made another element of it, which an apply leaves beside ours; this replaces lists.
		if c.Client.Patch(ctx, want, client.RawPatch(types.MergePatchType, data), client.FieldOwner(Manager)) == nil {
			err = nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("apply %s: %w", Title(c, want), err)
	}
	return true, nil
}

// same reports whether have is what want says: rendered from the same, and with everything that it states.
func (a Apply) same(want, have client.Object) bool {
	if have.GetAnnotations()[render.AnnotationHash] != want.GetAnnotations()[render.AnnotationHash] {
		return false
	}
	stated, errWant := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	found, errHave := runtime.DefaultUnstructuredConverter.ToUnstructured(have)
	if errWant != nil || errHave != nil {
		return false
	}
	if a.Frozen != nil && a.Frozen(want) {
		path := []string{"spec", "template", "spec"}
		w, _, _ := unstructured.NestedFieldNoCopy(stated, path...)
		h, _, _ := unstructured.NestedFieldNoCopy(found, path...)
		return states(w, h)
	}
	// Status is nobody's to state, and the type of what comes from a cache is empty.
	for _, field := range []string{"status", "apiVersion", "kind"} {
		delete(stated, field)
	}
	return states(stated, found)
}

// states reports whether have has every field that want sets. Lists of objects may hold what others added.
func states(want, have any) bool {
	switch w := want.(type) {
	case nil:
		return true
	case map[string]any:
		h, ok := have.(map[string]any)
		for key, field := range w {
			if value, has := h[key]; !empty(field) && (!has || !states(field, value)) {
				return false
			}
		}
		return ok
	case []any:
		h, ok := have.([]any)
		return ok && (slices.EqualFunc(w, h, states) || len(w) < len(h) && contains(h, w))
	default:
		return equality.Semantic.DeepEqual(want, have)
	}
}

// contains reports whether every element of want is an object that is stated by one of have.
func contains(have, want []any) bool {
	return !slices.ContainsFunc(want, func(w any) bool {
		_, object := w.(map[string]any)
		return !object || !slices.ContainsFunc(have, func(h any) bool { return states(w, h) })
	})
}

// empty reports whether a field states nothing.
func empty(field any) bool {
	switch f := field.(type) {
	case map[string]any:
		return len(f) == 0
	case []any:
		return len(f) == 0
	default:
		return field == nil
	}
}

// blank returns an empty object of the same kind.
func blank(c Cluster, object client.Object) (client.Object, error) {
	kind := object.GetObjectKind().GroupVersionKind()
	if _, is := object.(*unstructured.Unstructured); is {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		return u, nil
	}
	made, err := c.Client.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("make a %s: %w", kind.Kind, err)
	}
	empty, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("make a %s: it is no object", kind.Kind)
	}
	return empty, nil
}

// Title is kind and name of an object, for people.
func Title(c Cluster, object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if found, err := c.Client.GroupVersionKindFor(object); err == nil {
		kind = found.Kind
	}
	return kind + " " + object.GetName()
}
