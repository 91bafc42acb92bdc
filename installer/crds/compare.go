package crds

import (
	"maps"
	"slices"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Difference is the difference between a CRD of a cluster and that of this release. The API server silently drops fields that its CRD lacks;
// this release ignores fields that only the cluster's CRD has.
type Difference struct {
	// Same reports whether the CRD is that of this release.
	Same bool
	// Missing are the paths of fields that only this release has: the cluster's CRD is older and must be updated.
	Missing []string
	// Unknown are the paths of fields that only the cluster's CRD has: it is newer and must not be overwritten.
	Unknown []string
}

// Compare compares a CRD of a cluster with that of this release. Without Missing and Unknown fields they differ only in
// rules or descriptions.
func Compare(cluster, release *apiextensions.CustomResourceDefinition) Difference {
	if hash := cluster.Annotations[HashAnnotation]; hash != "" && hash == release.Annotations[HashAnnotation] {
		return Difference{Same: true}
	}
	there, here := paths(cluster), paths(release)
	return Difference{Missing: without(here, there), Unknown: without(there, here)}
}

// paths returns the paths of all fields of all served versions of a CRD, including those of Kubernetes' types.
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

// without returns the sorted elements of one set that are not in the other.
func without(one, other map[string]bool) []string {
	var list []string
	for _, path := range slices.Sorted(maps.Keys(one)) {
		if !other[path] {
			list = append(list, path)
		}
	}
	return list
}
