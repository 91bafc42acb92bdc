package crds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Field is one field of a kind.
type Field struct {
	// Path is the path of the field, such as spec.driver.rdma.enabled; list elements are written with [], such as
	// spec.nodeAgent.pools[].name.
	Path string
	// Type is the type in words: text, integer, boolean, list of text, or a Kubernetes type such as resources.
	Type string
	// Description is the comment in the source; Enum are the permitted values if they are enumerated.
	Description string
	Enum        []string
	// Leaf reports whether the field has a value. Other fields only contain fields.
	Leaf bool
}

// Fields returns the fields below spec or status of a kind in alphabetical order, parents before children. Kubernetes' types,
// such as env, tolerations and selectors, are one field.
func Fields(kind, part string) ([]Field, error) {
	list, err := Load()
	if err != nil {
		return nil, err
	}
	for _, crd := range list {
		if crd.Spec.Names.Kind != kind {
			continue
		}
		schema, ok := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part]
		if !ok {
			return nil, fmt.Errorf("list the fields of %s: it has no %s", kind, part)
		}
		return below(part, schema), nil
	}
	return nil, fmt.Errorf("list the fields of %s: there is no such kind in this release", kind)
}

// Leaves returns the paths of all leaf fields below spec of a kind. Tests use it to check that
// each field is covered.
func Leaves(kind string) ([]string, error) {
	fields, err := Fields(kind, "spec")
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, field := range fields {
		if field.Leaf {
			paths = append(paths, field.Path)
		}
	}
	return paths, nil
}

// foreign are Kubernetes' types by a property that only they have.
var foreign = map[string]string{
	"matchLabels":        "label selector",
	"effect":             "toleration",
	"valueFrom":          "environment variable",
	"limits":             "resources",
	"lastTransitionTime": "condition",
}

// below returns the fields of a schema.
func below(path string, schema apiextensions.JSONSchemaProps) []Field {
	var fields []Field
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		fields = append(fields, field(path+"."+name, schema.Properties[name])...)
	}
	return fields
}

// field returns a field and its children.
func field(path string, schema apiextensions.JSONSchemaProps) []Field {
	f := Field{Path: path, Type: typeOf(schema), Description: schema.Description, Enum: enumOf(schema)}
	element, suffix := schema, ""
	if schema.Items != nil && schema.Items.Schema != nil {
		element, suffix = *schema.Items.Schema, "[]"
	}
	if f.Leaf = len(element.Properties) == 0 || name(element) != ""; f.Leaf {
		return []Field{f}
	}
	return append([]Field{f}, below(path+suffix, element)...)
}

func typeOf(schema apiextensions.JSONSchemaProps) string {
	switch {
	case schema.XIntOrString:
		return "integer or percentage"
	case schema.Items != nil && schema.Items.Schema != nil:
		return "list of " + typeOf(*schema.Items.Schema)
	case schema.AdditionalProperties != nil:
		return "map of text"
	case name(schema) != "":
		return name(schema)
	case schema.Type == "string" && strings.HasSuffix(schema.Pattern, "(ms|s|m|h))+$"):
		return "duration"
	case schema.Type == "string" && schema.Format == "date-time":
		return "time"
	case schema.Type == "string":
		return "text"
	}
	return schema.Type
}

// name returns the name of a Kubernetes type, or "".
func name(schema apiextensions.JSONSchemaProps) string {
	for _, property := range slices.Sorted(maps.Keys(foreign)) {
		if _, ok := schema.Properties[property]; ok {
			return foreign[property]
		}
	}
	return ""
}

func enumOf(schema apiextensions.JSONSchemaProps) []string {
	if schema.Items != nil && schema.Items.Schema != nil {
		schema = *schema.Items.Schema
	}
	var values []string
	for _, value := range schema.Enum {
		values = append(values, strings.Trim(string(value.Raw), `"`))
	}
	return values
}
