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

// judge returns the verdict on every document that there is something to say about.
func judge(documents []document, drivers []string) Report {
	report := Report{APIVersion: v1alpha1.APIVersion, Kind: "CheckReport", Items: []Object{}}
	court := court{drivers: drivers, classes: map[string]resourceapi.DeviceClass{}}
	for _, d := range documents {
		court.learn(d)
	}
	for _, d := range documents {
		if object, ok := court.object(d); ok {
			report.Items = append(report.Items, object)
		}
	}
	return report
}

// court is who judges: it knows the DeviceClasses among the documents.
type court struct {
	drivers []string
	classes map[string]resourceapi.DeviceClass
}

// learn remembers a DeviceClass. One that cannot be read is told of when its turn comes.
func (c court) learn(d document) {
	var class resourceapi.DeviceClass
	if d.err == nil && kindOf(d.raw) == "DeviceClass" && json.UnmarshalCaseSensitivePreserveInts(d.raw, &class) == nil {
		c.classes[class.Name] = class
	}
}

// kindOf returns the kind of the object when it is one that is checked.
func kindOf(raw []byte) string {
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

// object returns the verdict on a document, and false for one that nobody asked about.
func (c court) object(d document) (Object, bool) {
	object := Object{File: d.file, Document: d.number, Problems: []Problem{}}
	if d.err != nil {
		object.Problems = append(object.Problems, Problem{Message: d.err.Error()})
		return object, true
	}
	object.Kind = kindOf(d.raw)
	var named metav1.PartialObjectMetadata
	if err := json.UnmarshalCaseSensitivePreserveInts(d.raw, &named); err != nil && object.Kind != "" {
		object.Problems = append(object.Problems, Problem{Message: err.Error()})
		return object, true
	}
	object.Namespace, object.Name = named.Namespace, named.Name
	var problems []Problem
	switch object.Kind {
	case "ResourceClaim":
		problems = decoded(d.raw, func(claim *resourceapi.ResourceClaim) []Problem {
			return c.devices("spec.devices", claim.Spec.Devices)
		})
	case "ResourceClaimTemplate":
		problems = decoded(d.raw, func(template *resourceapi.ResourceClaimTemplate) []Problem {
			return c.devices("spec.spec.devices", template.Spec.Spec.Devices)
		})
	case "DeviceClass":
		problems = decoded(d.raw, c.class)
	case v1alpha1.NodeConfigKind:
		problems = nodeConfig("", d.raw)
	case "ConfigMap":
		configs, found := configMap(d.raw)
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

// decoded reads the object strictly and judges it.
func decoded[T any](raw []byte, judge func(*T) []Problem) []Problem {
	current, err := modern(raw)
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
	return append(problems, judge(object)...)
}

// nodeConfig judges a NodeConfig; at is where it stands in the object.
func nodeConfig(at string, text []byte) []Problem {
	_, err := v1alpha1.Load(text)
	if err == nil {
		return nil
	}
	var problems []Problem
	for _, field := range fields(err) {
		problems = append(problems, Problem{Field: path(at, field.Field), Message: field.ErrorBody()})
	}
	if problems == nil {
		problems = []Problem{{Field: at, Message: err.Error()}}
	}
	return problems
}

// configMap judges the NodeConfigs in a ConfigMap; it is false when there are none.
func configMap(raw []byte) ([]Problem, bool) {
	var object corev1.ConfigMap
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, false
	}
	var problems []Problem
	var found bool
	for _, key := range slices.Sorted(maps.Keys(object.Data)) {
		text := []byte(object.Data[key])
		inner, err := yaml.YAMLToJSON(text)
		if err != nil || kindOf(inner) != v1alpha1.NodeConfigKind {
			continue
		}
		found = true
		problems = append(problems, nodeConfig(fmt.Sprintf("data[%s]", key), text)...)
	}
	return problems, found
}

// modern returns the object with its requests as version v1 has them: v1beta1 has the fields of exactly
// beside the name.
func modern(raw []byte) ([]byte, error) {
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
			return nil, errors.New("requests are not objects")
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
