package policy

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestA21OtherCRDs checks that CRDs that lack fields prevent all removals and are reported; those of a newer release, as after a rollback, are not.
func TestA21OtherCRDs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		hash  string
		lacks []string
		// err is why the fields cannot be compared, unknown whether they cannot be listed at all, absent whether there is no CRD.
		err             error
		unknown, absent bool
		fault           string
	}{
		"of this release": {hash: "this"},
		"newer":           {hash: "other"},
		"older": {hash: "other", lacks: []string{"spec.later", "spec.more"}, fault: "the CRD a.tessera.dev is not that of this release, " +
			"it lacks 2 fields, such as spec.later; run `tessera-installer crds` of this release, or update the CRDs with the tool that installed them; no object is removed until then"},
		"older, and its fields are unknown": {hash: "other", unknown: true, fault: "the CRD a.tessera.dev is not that of this release, " +
			"fields may be lost; run `tessera-installer crds` of this release, or update the CRDs with the tool that installed them; no object is removed until then"},
		"unreadable": {hash: "other", err: errors.New("no schema"), fault: "the schema of CRD a.tessera.dev cannot be compared with that of this release: no schema"},
		"absent": {absent: true, fault: "the schema of CRD a.tessera.dev cannot be compared with that of this release: " +
			`customresourcedefinitions.apiextensions.k8s.io "a.tessera.dev" not found`},
	}
	for name, test := range tests {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(crdKind)
		crd.SetName("a.tessera.dev")
		crd.SetAnnotations(map[string]string{SchemaAnnotation: test.hash})
		s := &crdSchemas{released: map[string]string{"a.tessera.dev": "this"}, lacks: func(*unstructured.Unstructured) ([]string, error) { return test.lacks, test.err }}
		if test.unknown {
			s.lacks = nil
		}
		if test.absent {
			crd.SetName("other.tessera.dev")
		}
		p, fault := &pass{}, ""
		again := s.check(t.Context(), fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(crd).Build(), p)
		if len(p.faults) > 0 {
			fault = p.faults[0].message
		}
		if fault != test.fault || s.complete() != (test.fault == "") || (again > 0) != (test.fault != "") {
			t.Errorf("%s: fault %q, removes: %t, again after %s", name, fault, s.complete(), again)
		}
	}
}
