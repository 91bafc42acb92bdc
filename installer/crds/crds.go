// Package crds embeds the CustomResourceDefinitions of the group tessera.dev for the programs that apply, compare or document them. The files are
// generated from api/v1alpha1 and equal those in the chart.
package crds

import (
	"embed"
	"fmt"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// HashAnnotation is the hexadecimal SHA-256 of the released spec of a CRD. A CRD in a cluster with another value than that of
// Load is not of this release.
const HashAnnotation = "tessera.dev/schema-hash"

//go:embed *.yaml
var files embed.FS

// Load returns the CustomResourceDefinitions of this release, sorted by name. The caller may modify them.
func Load() ([]*apiextensions.CustomResourceDefinition, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("read the CRDs of this release: %w", err)
	}
	var list []*apiextensions.CustomResourceDefinition
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the CRDs of this release: %w", err)
		}
		crd := &apiextensions.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("read the CRD %s of this release: %w", strings.TrimSuffix(entry.Name(), ".yaml"), err)
		}
		list = append(list, crd)
	}
	return list, nil
}
