package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SchemaAnnotation has the hash of a CRD's schema as it was released.
const SchemaAnnotation = "tessera.dev/schema-hash"

// schemaRecheck is the time after which CRDs of another release are read again.
const schemaRecheck = 30 * time.Second

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// crdSchemas compares the CRDs of the cluster with those of this release. If they lack fields, the API server drops these fields from what is written, so an
// absent field does not mean that something is not wanted, and nothing may be deleted. CRDs of a newer release lack no fields.
type crdSchemas struct {
	// released has the hashes by the CRDs' names; nil: nothing is compared.
	released map[string]string
	// lacks returns the fields of this release that a CRD does not have; nil: a CRD with another hash counts as lacking some.
	lacks func(*unstructured.Unstructured) ([]string, error)
	known atomic.Bool
}

// check reads the CRDs until they have all fields of the release, adds a fault to the pass where they do not, and returns the time after which to check
// again; 0 means never.
func (s *crdSchemas) check(ctx context.Context, live client.Reader, p *pass) time.Duration {
	if s.known.Load() {
		return 0
	}
	for _, name := range slices.Sorted(maps.Keys(s.released)) {
		crd := &metav1.PartialObjectMetadata{}
		crd.SetGroupVersionKind(crdKind)
		text := ""
		switch err := live.Get(ctx, types.NamespacedName{Name: name}, crd); {
		case err != nil:
			text = fmt.Sprintf("the schema of CRD %s cannot be compared with that of this release: %v", name, err)
		case crd.Annotations[SchemaAnnotation] != s.released[name]:
			text = s.compare(ctx, live, name)
		}
		if text == "" {
			continue
		}
		klog.FromContext(ctx).Error(nil, "The schema is of another release", "message", text)
		p.faults = append(p.faults, fault{"SchemaMismatch", text})
		return schemaRecheck
	}
	s.known.Store(true)
	return 0
}

// compare returns what a CRD of another release lacks, for messages, or an empty text.
func (s *crdSchemas) compare(ctx context.Context, live client.Reader, name string) string {
	lost := "fields may be lost"
	if s.lacks != nil {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(crdKind)
		err := live.Get(ctx, types.NamespacedName{Name: name}, crd)
		var fields []string
		if err == nil {
			fields, err = s.lacks(crd)
		}
		switch {
		case err != nil:
			return fmt.Sprintf("the schema of CRD %s cannot be compared with that of this release: %v", name, err)
		case len(fields) == 0:
			klog.FromContext(ctx).Info("A CRD is of another release and has every field of this one", "crd", name)
			return ""
		}
		lost = fmt.Sprintf("it lacks %d fields, such as %s", len(fields), fields[0])
	}
	return fmt.Sprintf("the CRD %s is not that of this release, %s; run `tessera-installer crds` of this release, "+
		"or update the CRDs with the tool that installed them; no object is removed until then", name, lost)
}

// complete reports whether the CRDs are known to have all fields of the release.
func (s *crdSchemas) complete() bool { return s.known.Load() }
