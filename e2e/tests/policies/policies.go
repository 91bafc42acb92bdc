// Package policies holds objects of the installer with the verdict on each, and gives the verdict of an API server in a test's own process.
package policies

import (
	_ "embed" // the cases
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

//go:embed cases.yaml
var text []byte

// Case is an object, or an edit of one, and the verdict on it. One of Policy and Driver is its spec.
type Case struct {
	Name   string         `json:"name"`
	Named  string         `json:"named,omitempty"`
	Policy map[string]any `json:"policy,omitempty"`
	Driver map[string]any `json:"driver,omitempty"`
	// From is the spec before the edit; absent: the object is created.
	From *map[string]any `json:"from,omitempty"`
	// Refused is a part of the error about a wrong object; empty for a right one.
	Refused string `json:"refused,omitempty"`
}

// Load returns the cases.
func Load() ([]Case, error) {
	var cases []Case
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		return nil, fmt.Errorf("read the cases: %w", err)
	}
	return cases, nil
}

// Object is the object of the case, and what it was before the edit, or nil.
func (c Case) Object() (object, before *unstructured.Unstructured, err error) {
	if c.From != nil {
		if before, err = c.object(*c.From); err != nil {
			return nil, nil, err
		}
	}
	spec := c.Policy
	if c.Driver != nil {
		spec = c.Driver
	}
	object, err = c.object(spec)
	return object, before, err
}

func (c Case) object(spec map[string]any) (*unstructured.Unstructured, error) {
	kind, name := "ClusterPolicy", v1alpha1.ClusterPolicyName
	if c.Driver != nil {
		kind, name = "NVIDIADriver", "some"
	}
	if c.Named != "" {
		name = c.Named
	}
	content, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", c.Name, err)
	}
	object := &unstructured.Unstructured{} // it decodes whole numbers as whole numbers, as the API server does
	if err := object.UnmarshalJSON(content); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.Name, err)
	}
	return object, nil
}
