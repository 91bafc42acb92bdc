package main

import (
	"fmt"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tessera-gpu/tessera/installer/crds"
)

// transcript is what was printed.
type transcript struct{ strings.Builder }

// Printf prints.
func (t *transcript) Printf(format string, values ...any) { fmt.Fprintf(t, format, values...) }

// TestA21NewerCRDsAreKept: a release that is older than the CRDs, as after a rollback, takes no field away from them; CRDs that are older are brought
// up to date.
func TestA21NewerCRDsAreKept(t *testing.T) {
	t.Parallel()
	list, err := crds.Load()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := apiextensions.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	for i, crd := range list {
		crd.Annotations[crds.HashAnnotation] = "of another release"
		crd.Status.Conditions = []apiextensions.CustomResourceDefinitionCondition{{Type: apiextensions.Established, Status: apiextensions.ConditionTrue}}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
		if i == 0 {
			spec["later"] = apiextensions.JSONSchemaProps{Type: "string"}
		} else {
			for name := range spec {
				delete(spec, name)
			}
		}
		objects = append(objects, crd)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	var printed transcript
	if err := applyCRDs(t.Context(), c, &printed); err != nil {
		t.Fatal(err)
	}
	released, err := crds.Load()
	if err != nil {
		t.Fatal(err)
	}
	for i, crd := range released {
		live := &apiextensions.CustomResourceDefinition{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), live); err != nil {
			t.Fatal(err)
		}
		d := crds.Compare(live, crd)
		switch {
		case i == 0 && (len(d.Unknown) != 1 || !strings.Contains(printed.String(), crd.Name+" is from a newer release, which also has spec.later; it is not changed")):
			t.Errorf("the newer %s: %+v, output\n%s", crd.Name, d, printed.String())
		case i > 0 && !d.Same:
			t.Errorf("the older %s was not brought up to date: %+v", crd.Name, d)
		}
	}
}

// TestFieldsThatCRDsLack: what an installer runs with is enough when it is newer, and is not when it is older.
func TestFieldsThatCRDsLack(t *testing.T) {
	t.Parallel()
	list, err := crds.Load()
	if err != nil {
		t.Fatal(err)
	}
	crd := list[0]
	properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	properties["later"] = apiextensions.JSONSchemaProps{Type: "string"}
	for _, want := range []string{"", "spec.driver"} {
		crd.Annotations[crds.HashAnnotation] = "of another release"
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := lacks(&unstructured.Unstructured{Object: object})
		if got := strings.Join(fields[:min(1, len(fields))], ""); err != nil || got != want {
			t.Errorf("%s lacks %q, error %v, want %q", crd.Name, got, err, want)
		}
		delete(properties, "driver")
	}
}
