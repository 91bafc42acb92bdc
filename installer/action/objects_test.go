package action

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/installer/render"
)

func never(client.Object) bool { return false }

// rendered returns a ConfigMap as render makes it.
func rendered(name, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ownNamespace, Name: name, Labels: map[string]string{render.LabelManagedBy: render.ManagedBy},
			Annotations: map[string]string{render.AnnotationHash: text},
		},
		Data: map[string]string{"key": text},
	}
}

// stored returns an object as the API server has it: without kind.
func stored(m *corev1.ConfigMap, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	m = m.DeepCopy()
	m.TypeMeta = metav1.TypeMeta{}
	change(m)
	return m
}

// An object is compared with the cluster before it is written: one that is as rendered costs no write, and what others added to one stays.
func TestApplyObjectsReadsBeforeItWrites(t *testing.T) {
	want := rendered("a", "x")
	tests := map[string]struct {
		have  func(*corev1.ConfigMap)
		wrote bool
	}{
		"as rendered":                 {func(*corev1.ConfigMap) {}, false},
		"with a label of others":      {func(m *corev1.ConfigMap) { m.Labels["own"] = "yes" }, false},
		"with another value":          {func(m *corev1.ConfigMap) { m.Data["key"] = "edited" }, true},
		"rendered from another input": {func(m *corev1.ConfigMap) { m.Annotations[render.AnnotationHash] = "y" }, true},
		"edited, with data of others": {func(m *corev1.ConfigMap) { m.Data["key"], m.Data["own"] = "edited", "kept" }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, c := newServer(t, stored(want, test.have))
			before := read(s, ownNamespace, "a", &corev1.ConfigMap{})
			written, err := c.ApplyObjects(t.Context(), []client.Object{want}, never)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(written) == 1 && written[0] == "ConfigMap a"; got != test.wrote || len(s.writes) != len(written) {
				t.Errorf("wrote %q with requests %q, want a write: %t", written, s.writes, test.wrote)
			}
			now := read(s, ownNamespace, "a", &corev1.ConfigMap{})
			if now.Data["key"] != "x" {
				t.Errorf("the value is %q", now.Data["key"])
			}
			if now.Data["own"] != before.Data["own"] || now.Labels["own"] != before.Labels["own"] {
				t.Errorf("what others added is gone: %v, %v", now.Data, now.Labels)
			}
		})
	}
}

// An object that does not exist is created. One that cannot be read is not written, and neither error stops the other objects.
func TestApplyObjectsGoesOnAfterErrors(t *testing.T) {
	s, c := newServer(t)
	s.fail = func(verb string, o runtime.Object) error {
		if m, is := o.(*corev1.ConfigMap); is && (verb == "patch" && m.Name == "b") {
			return errRefused
		}
		if _, is := o.(*corev1.Service); is && verb == "get" {
			return errRefused
		}
		return nil
	}
	service := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: "s"}}
	written, err := c.ApplyObjects(t.Context(), []client.Object{service, rendered("b", "x"), rendered("c", "x")}, never)
	mustFail(t, "apply", err)
	if diff := cmp.Diff([]string{"ConfigMap c"}, written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	if text := err.Error(); !strings.Contains(text, "read Service s") || !strings.Contains(text, "apply ConfigMap b") {
		t.Errorf("the error is %q", text)
	}
	for _, w := range s.writes {
		if strings.Contains(w, "Service") {
			t.Errorf("an object that could not be read was written: %q", s.writes)
		}
	}
}

// A driver DaemonSet that exists is written for its pod spec only.
func TestApplyObjectsLeavesFrozenObjects(t *testing.T) {
	set := &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: metav1.ObjectMeta{
		Namespace: ownNamespace, Name: "d", Labels: map[string]string{"team": "ml"},
	}}
	have := set.DeepCopy()
	have.TypeMeta, have.Labels = metav1.TypeMeta{}, nil
	for frozen, want := range map[bool]int{true: 0, false: 1} {
		_, c := newServer(t, have.DeepCopy())
		written, err := c.ApplyObjects(t.Context(), []client.Object{set}, func(client.Object) bool { return frozen })
		if err != nil || len(written) != want {
			t.Errorf("frozen %t: wrote %q, error %v", frozen, written, err)
		}
	}
}

// If the API server rejects an apply to an existing object as invalid, a merge patch replaces its lists.
func TestApplyObjectsReplacesListsOfInvalidObjects(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", nil)
	tests := map[string]struct {
		exists, merges bool
		patches        int
		wrote          bool
	}{
		"a merge patch works":    {exists: true, merges: true, patches: 2, wrote: true},
		"it does not":            {exists: true, patches: 2},
		"there is no object yet": {merges: true, patches: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if test.exists {
				objects = append(objects, stored(rendered("a", "x"), func(m *corev1.ConfigMap) { m.UID, m.Data["key"] = "uid", "edited" }))
			}
			s, c := newServer(t, objects...)
			patches := 0
			c.Client = interceptor.NewClient(s, interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, patch client.Patch, _ ...client.PatchOption) error {
					patches++
					if patch.Type() == types.MergePatchType && test.merges {
						return nil
					}
					return invalid
				},
			})
			written, err := c.ApplyObjects(t.Context(), []client.Object{rendered("a", "x")}, never)
			if (len(written) == 1) != test.wrote || (err == nil) != test.wrote || patches != test.patches {
				t.Errorf("wrote %q with %d patches, error %v", written, patches, err)
			}
		})
	}
}

// Kinds that the installer has no type for are written as they are; a typed object of an unknown kind is an error.
func TestApplyObjectsOfOtherKinds(t *testing.T) {
	monitor := &unstructured.Unstructured{}
	monitor.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"})
	monitor.SetNamespace(ownNamespace)
	monitor.SetName("m")
	s, c := newServer(t)
	patched := 0
	c.Client = interceptor.NewClient(s, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewNotFound(schema.GroupResource{}, "m")
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			patched++
			return nil
		},
	})
	written, err := c.ApplyObjects(t.Context(), []client.Object{monitor}, never)
	if err != nil || patched != 1 || len(written) != 1 || written[0] != "ServiceMonitor m" {
		t.Errorf("wrote %q with %d patches, error %v", written, patched, err)
	}
	unknown := rendered("a", "x")
	unknown.Kind = "Unknown"
	if _, err := c.ApplyObjects(t.Context(), []client.Object{unknown}, never); err == nil || !strings.Contains(err.Error(), "create an empty Unknown") {
		t.Errorf("got error %v", err)
	}
	list := rendered("a", "x")
	list.Kind = "ConfigMapList"
	if _, err := c.ApplyObjects(t.Context(), []client.Object{list}, never); err == nil || !strings.Contains(err.Error(), "is no API object") {
		t.Errorf("got error %v", err)
	}
}

// Objects with the installer's label that are not kept are deleted, each with its UID; others stay. An error does not stop the other kinds and objects.
func TestPruneObjects(t *testing.T) {
	foreign := stored(rendered("foreign", "x"), func(m *corev1.ConfigMap) { m.Labels = nil })
	leaving := stored(rendered("leaving", "x"), func(m *corev1.ConfigMap) {
		m.Finalizers, m.DeletionTimestamp = []string{"f/f"}, &metav1.Time{Time: metav1.Now().Time}
	})
	kept, old, stuck := stored(rendered("kept", "x"), func(*corev1.ConfigMap) {}), stored(rendered("old", "x"), func(*corev1.ConfigMap) {}), stored(rendered("stuck", "x"), func(*corev1.ConfigMap) {})
	s, c := newServer(t, foreign, leaving, kept, old, stuck)
	s.fail = func(verb string, o runtime.Object) error {
		if _, is := o.(*corev1.ServiceList); is && verb == "list" {
			return errRefused
		}
		if m, is := o.(*corev1.ConfigMap); is && verb == "delete" && m.Name == "stuck" {
			return errRefused
		}
		return nil
	}
	deleted, err := c.PruneObjects(t.Context(), []client.ObjectList{&corev1.ServiceList{}, &corev1.ConfigMapList{}}, func(o client.Object) bool {
		return o.GetName() == "kept"
	})
	mustFail(t, "prune", err)
	if text := err.Error(); !strings.Contains(text, "list *v1.ServiceList") || !strings.Contains(text, "delete ConfigMap stuck") {
		t.Errorf("the error is %q", text)
	}
	if diff := cmp.Diff([]string{"ConfigMap old"}, deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	for _, name := range []string{"foreign", "kept", "stuck", "leaving"} {
		if !exists(s, ownNamespace, name, &corev1.ConfigMap{}) {
			t.Errorf("%s is deleted", name)
		}
	}
	if exists(s, ownNamespace, "old", &corev1.ConfigMap{}) {
		t.Error("old is not deleted")
	}
}

// Objects that cannot be encoded match nothing, and a field that states nothing matches everything.
func TestComparedFields(t *testing.T) {
	set := &appsv1.DaemonSet{}
	if !matchesRendered(set, set.DeepCopy(), false) {
		t.Error("an object does not match itself")
	}
	for name, test := range map[string]struct {
		have, want any
		contains   bool
	}{
		"nothing stated":         {nil, nil, true},
		"an empty map":           {map[string]any{}, map[string]any{"a": map[string]any{}, "b": []any{}, "c": nil}, true},
		"a missing field":        {map[string]any{}, map[string]any{"a": "x"}, false},
		"no map":                 {"x", map[string]any{"a": "x"}, false},
		"a longer list":          {[]any{map[string]any{"n": "a"}, map[string]any{"n": "b"}}, []any{map[string]any{"n": "b"}}, true},
		"a longer list of texts": {[]any{"a", "b"}, []any{"b"}, false},
		"a shorter list":         {[]any{}, []any{"b"}, false},
		"no list":                {"x", []any{"b"}, false},
		"an element is missing":  {[]any{map[string]any{"n": "a"}, map[string]any{"n": "b"}}, []any{map[string]any{"n": "c"}}, false},
	} {
		if got := containsFields(test.have, test.want); got != test.contains {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
