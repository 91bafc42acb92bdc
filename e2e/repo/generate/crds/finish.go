package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/installer/crds"
)

// Kubernetes' own types below ours. Their fields are documented in Kubernetes; repeated here for every operand they would be four fifths of the
// file. Their enums are included, so that a typing error is rejected when the object is written and not when its DaemonSet is.
var kubernetesFields = map[string]func(*apiextensions.JSONSchemaProps){
	"conditions":   func(*apiextensions.JSONSchemaProps) {},
	"env":          func(*apiextensions.JSONSchemaProps) {},
	"labels":       labels,
	"nodeSelector": selector,
	"resources":    func(*apiextensions.JSONSchemaProps) {},
	"tolerations":  tolerations,
	"waitFor":      selector,
}

// driverImage describes the image of a driver: a driver is a component with several images, one for each operating system and kernel.
const driverImage = "Image is the image's name without a tag, such as nvcr.io/nvidia/driver: the tag is made of version, kernel and operating system of the " +
	"node. A reference with a digest is taken as it is. Empty, the default, is the one that the installer was released with."

// finish converts a CRD from controller-gen into the shipped one: without the descriptions of Kubernetes' own types, with their enums, and with
// the hash by which the installer identifies its schema.
func finish(text []byte) ([]byte, error) {
	var crd apiextensions.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, err
	}
	for i := range crd.Spec.Versions {
		schema := crd.Spec.Versions[i].Schema.OpenAPIV3Schema
		for _, name := range []string{"apiVersion", "kind"} {
			property := schema.Properties[name]
			property.Description = ""
			schema.Properties[name] = property
		}
		ours(schema)
	}
	content, err := json.Marshal(crd.Spec)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(content)
	crd.Annotations[crds.HashAnnotation] = hex.EncodeToString(hash[:])
	return marshal(crd)
}

// ours finishes a schema of ours and those below it.
func ours(schema *apiextensions.JSONSchemaProps) {
	_, driver := schema.Properties["kernelModuleType"]
	for name, property := range schema.Properties {
		if change, foreign := kubernetesFields[name]; foreign {
			description := property.Description
			undescribe(&property)
			property.Description = description
			change(&property)
		} else {
			ours(&property)
		}
		if driver && name == "image" {
			property.Description = driverImage
		}
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		ours(schema.Items.Schema)
	}
}

// undescribe removes the descriptions of a schema and those below it.
func undescribe(schema *apiextensions.JSONSchemaProps) {
	schema.Description = ""
	for name, property := range schema.Properties {
		undescribe(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		undescribe(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		undescribe(schema.AdditionalProperties.Schema)
	}
}

func selector(schema *apiextensions.JSONSchemaProps) {
	expressions := schema.Properties["matchExpressions"]
	expressions.MaxItems = new(int64(32))
	item := expressions.Items.Schema
	operator := item.Properties["operator"]
	operator.Enum = enum("In", "NotIn", "Exists", "DoesNotExist")
	item.Properties["operator"] = operator
	values := item.Properties["values"]
	values.MaxItems = new(int64(256))
	item.Properties["values"] = values
	item.XValidations = append(item.XValidations, apiextensions.ValidationRule{
		Rule:    "self.operator in ['In', 'NotIn'] ? self.?values.orValue([]).size() > 0 : self.?values.orValue([]).size() == 0",
		Message: "In and NotIn need values, Exists and DoesNotExist have none",
	})
	schema.Properties["matchExpressions"] = expressions
}

func labels(schema *apiextensions.JSONSchemaProps) {
	value := schema.AdditionalProperties.Schema
	value.MaxLength = new(int64(63))
	value.Pattern = `^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
}

func tolerations(schema *apiextensions.JSONSchemaProps) {
	properties := schema.Items.Schema.Properties
	operator := properties["operator"]
	operator.Enum = enum("Exists", "Equal", "Lt", "Gt")
	properties["operator"] = operator
	effect := properties["effect"]
	effect.Enum = enum("NoSchedule", "PreferNoSchedule", "NoExecute")
	properties["effect"] = effect
}

func enum(values ...string) []apiextensions.JSON {
	var list []apiextensions.JSON
	for _, value := range values {
		list = append(list, apiextensions.JSON{Raw: fmt.Appendf(nil, "%q", value)})
	}
	return list
}

// marshal writes a CRD without its status, which is the API server's.
func marshal(crd apiextensions.CustomResourceDefinition) ([]byte, error) {
	content, err := json.Marshal(crd)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(content, &object); err != nil {
		return nil, err
	}
	delete(object, "status")
	return yaml.Marshal(object)
}
