package crds

import (
	"maps"
	"slices"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Difference is how a CRD of a cluster differs from that of this release. A field that the cluster's does not know is dropped silently by
// the API server; one that only the cluster's knows is one that this release would ignore.
type Difference struct {
	// Same is whether it is that of this release.
	Same bool
	// Missing are the paths of this release's fields that the cluster's CRD lacks: it is older, and must be applied anew.
	Missing []string
	// Unknown are the paths of the cluster's fields that this release does not know: it is newer, and must not be overwritten.
	Unknown []string
}

// Compare compares a CRD of a cluster with the one of the same name of this release. With neither Missing nor Unknown fields they differ in
// rules or descriptions only.
func Compare(cluster, release *apiextensions.CustomResourceDefinition) Difference {
	if hash := cluster.Annotations[HashAnnotation]; hash != "" && hash == release.Annotations[HashAnnotation] {
		return Difference{Same: true}
	}
	there, here := paths(cluster), paths(release)
	return Difference{Missing: without(here, there), Unknown: without(there, here)}
}

// paths returns the paths of all fields of all served versions of a CRD, those of Kubernetes' own types included.
func paths(crd *apiextensions.CustomResourceDefinition) map[string]bool {
	set := map[string]bool{}
	for _, version := range crd.Spec.Versions {
		if version.Served && version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
			collect(set, "", *version.Schema.OpenAPIV3Schema)
		}
	}
	return set
}

func collect(set map[string]bool, prefix string, schema apiextensions.JSONSchemaProps) {
	for name, property := range schema.Properties {
		path := prefix + name
		set[path] = true
		if property.Items != nil && property.Items.Schema != nil {
			collect(set, path+"[].", *property.Items.Schema)
		}
		collect(set, path+".", property)
	}
}

// without returns what is in one set and not in the other, in order.
func without(one, other map[string]bool) []string {
	var list []string
	for _, path := range slices.Sorted(maps.Keys(one)) {
		if !other[path] {
			list = append(list, path)
		}
	}
	return list
}
