package check

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// checkDocuments validates all documents of supported kinds and all that cannot be read.
func checkDocuments(documents []document, drivers []string) Report {
	report := Report{APIVersion: v1alpha1.APIVersion, Kind: "CheckReport", Items: []Object{}}
	c := checker{drivers: drivers, classes: map[string]resourceapi.DeviceClass{}}
	for _, d := range documents {
		c.addClass(d)
	}
	for _, d := range documents {
		if object, ok := c.checkObject(d); ok {
			report.Items = append(report.Items, object)
		}
	}
	return report
}

// checker validates objects against the DeviceClasses among the documents.
type checker struct {
	drivers []string
	classes map[string]resourceapi.DeviceClass
}

// addClass records a DeviceClass. Errors are reported by checkObject.
func (c checker) addClass(d document) {
	var class resourceapi.DeviceClass
	if d.err == nil && supportedKind(d.raw) == "DeviceClass" && json.UnmarshalCaseSensitivePreserveInts(d.raw, &class) == nil {
		c.classes[class.Name] = class
	}
}

// supportedKind returns the kind of the object; empty for a kind that is not validated.
func supportedKind(raw []byte) string {
	var meta metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &meta); err != nil {
		return ""
	}
	group, _, _ := strings.Cut(meta.APIVersion, "/")
	known := map[string][]string{
		resourceapi.GroupName: {"ResourceClaim", "ResourceClaimTemplate", "DeviceClass"},
		"tessera.dev":         {v1alpha1.NodeConfigKind},
		"v1":                  {"ConfigMap"},
	}
	if !slices.Contains(known[group], meta.Kind) {
		return ""
	}
	return meta.Kind
}

// checkObject returns the result for a document; false for a kind that is not validated.
func (c checker) checkObject(d document) (Object, bool) {
	object := Object{File: d.file, Document: d.number, Problems: []Problem{}}
	if d.err != nil {
		object.Problems = append(object.Problems, Problem{Message: d.err.Error()})
		return object, true
	}
	object.Kind = supportedKind(d.raw)
	var named metav1.PartialObjectMetadata
	if err := json.UnmarshalCaseSensitivePreserveInts(d.raw, &named); err != nil && object.Kind != "" {
		object.Problems = append(object.Problems, Problem{Message: err.Error()})
		return object, true
	}
	object.Namespace, object.Name = named.Namespace, named.Name
	var problems []Problem
	switch object.Kind {
	case "ResourceClaim":
		problems = checkDecoded(d.raw, func(claim *resourceapi.ResourceClaim) []Problem {
			return c.checkDevices("spec.devices", claim.Spec.Devices)
		})
	case "ResourceClaimTemplate":
		problems = checkDecoded(d.raw, func(template *resourceapi.ResourceClaimTemplate) []Problem {
			return c.checkDevices("spec.spec.devices", template.Spec.Spec.Devices)
		})
	case "DeviceClass":
		problems = checkDecoded(d.raw, c.checkClass)
	case v1alpha1.NodeConfigKind:
		problems = checkNodeConfig("", d.raw)
	case "ConfigMap":
		configs, found := checkConfigMap(d.raw)
		if !found {
			return Object{}, false
		}
		problems = configs
	default:
		return Object{}, false
	}
	object.Problems = append(object.Problems, problems...)
	return object, true
}

// checkDecoded decodes the object strictly, without unknown fields, and validates it.
func checkDecoded[T any](raw []byte, check func(*T) []Problem) []Problem {
	current, err := convertRequests(raw)
	if err != nil {
		return []Problem{{Message: err.Error()}}
	}
	object := new(T)
	unknown, err := json.UnmarshalStrict(current, object)
	if err != nil {
		return []Problem{{Message: err.Error()}}
	}
	var problems []Problem
	for _, err := range unknown {
		problems = append(problems, Problem{Message: err.Error()})
	}
	return append(problems, check(object)...)
}

// checkNodeConfig validates a NodeConfig; at is its path in the object.
func checkNodeConfig(at string, text []byte) []Problem {
	_, err := v1alpha1.Load(text)
	if err == nil {
		return nil
	}
	var problems []Problem
	for _, field := range fieldErrors(err) {
		problems = append(problems, Problem{Field: joinPath(at, field.Field), Message: field.ErrorBody()})
	}
	if problems == nil {
		problems = []Problem{{Field: at, Message: err.Error()}}
	}
	return problems
}

// checkConfigMap validates the NodeConfigs in a ConfigMap; false without any.
func checkConfigMap(raw []byte) ([]Problem, bool) {
	var object corev1.ConfigMap
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, false
	}
	var problems []Problem
	var found bool
	for _, key := range slices.Sorted(maps.Keys(object.Data)) {
		text := []byte(object.Data[key])
		inner, err := yaml.YAMLToJSON(text)
		if err != nil || supportedKind(inner) != v1alpha1.NodeConfigKind {
			continue
		}
		found = true
		problems = append(problems, checkNodeConfig(fmt.Sprintf("data[%s]", key), text)...)
	}
	return problems, found
}

// convertRequests returns the object with requests in the form of v1. In v1beta1 the fields of "exactly" are fields of the request
// itself.
func convertRequests(raw []byte) ([]byte, error) {
	var object map[string]any
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, err
	}
	if object["apiVersion"] != resourceapi.GroupName+"/v1beta1" || object["kind"] == "DeviceClass" {
		return raw, nil
	}
	spec, _ := object["spec"].(map[string]any)
	if inner, ok := spec["spec"].(map[string]any); ok {
		spec = inner
	}
	devices, _ := spec["devices"].(map[string]any)
	requests, _ := devices["requests"].([]any)
	for i, request := range requests {
		flat, ok := request.(map[string]any)
		if !ok {
			return nil, errors.New("invalid requests: not objects")
		}
		if _, ok := flat["firstAvailable"]; ok {
			continue
		}
		exactly := maps.Clone(flat)
		delete(exactly, "name")
		requests[i] = map[string]any{"name": flat["name"], "exactly": exactly}
	}
	return stdjson.Marshal(object)
}
