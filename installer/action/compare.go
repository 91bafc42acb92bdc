package action

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/render"
)

// matchesRendered reports whether have was rendered from the same input as want and still has every field that want states. Of a frozen object only
// the hash and the pod spec are compared.
func matchesRendered(want, have client.Object, frozen bool) bool {
	if have.GetAnnotations()[render.AnnotationHash] != want.GetAnnotations()[render.AnnotationHash] {
		return false
	}
	stated, errWant := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	found, errHave := runtime.DefaultUnstructuredConverter.ToUnstructured(have)
	if errWant != nil || errHave != nil {
		return false
	}
	if frozen {
		path := []string{"spec", "template", "spec"}
		w, _, _ := unstructured.NestedFieldNoCopy(stated, path...)
		h, _, _ := unstructured.NestedFieldNoCopy(found, path...)
		return containsFields(h, w)
	}
	// The status is not part of what is rendered, and objects from a cache have no apiVersion and kind.
	for _, field := range []string{"status", "apiVersion", "kind"} {
		delete(stated, field)
	}
	return containsFields(found, stated)
}

// containsFields reports whether have has every field that want sets, with its value. Other fields of have do not count. A list must be equal, or, if it
// is a longer list of objects, contain an element for each element of want.
func containsFields(have, want any) bool {
	switch w := want.(type) {
	case nil:
		return true
	case map[string]any:
		h, ok := have.(map[string]any)
		for key, field := range w {
			if value, has := h[key]; !isEmptyField(field) && (!has || !containsFields(value, field)) {
				return false
			}
		}
		return ok
	case []any:
		h, ok := have.([]any)
		return ok && (slices.EqualFunc(h, w, containsFields) || len(w) < len(h) && containsElements(h, w))
	default:
		return equality.Semantic.DeepEqual(want, have)
	}
}

// containsElements reports whether every element of want is an object whose fields some element of have contains.
func containsElements(have, want []any) bool {
	return !slices.ContainsFunc(want, func(w any) bool {
		_, object := w.(map[string]any)
		return !object || !slices.ContainsFunc(have, func(h any) bool { return containsFields(h, w) })
	})
}

// isEmptyField reports whether a field states nothing.
func isEmptyField(field any) bool {
	switch f := field.(type) {
	case map[string]any:
		return len(f) == 0
	case []any:
		return len(f) == 0
	default:
		return field == nil
	}
}
