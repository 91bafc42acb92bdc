package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// The ConfigMap with the NodeConfig, and the extended resource that moves to NVIDIA's DeviceClass.
const (
	configName   = "tessera-node-config"
	configKey    = "node.yaml"
	wholeGPUName = "nvidia.com/gpu"
)

const componentHead = `# Generated from the manifests in deployments/ by e2e/repo/generate; do not edit.
#
# Sets the driver name to that of NVIDIA's driver, %[2]s, so that claims for that driver run unchanged. Add it as a component to a
# kustomization that has deployments/ as a resource; see README.md.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources:
- deviceclasses.yaml
patches:
`

// driverText matches the driver's name in a text, but neither a longer name that contains it nor an API group.
var driverText = regexp.MustCompile(`(^|[^.\w-])` + regexp.QuoteMeta(v1alpha1.DriverName) + `($|[^/\w-])`)

// operation is one of JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// renderComponent returns a kustomize component that changes the driver's name in everything that the
// kustomizations of the folders list. Objects that are not installed are not patched.
func renderComponent(folders ...string) (string, error) {
	var objects []*unstructured.Unstructured
	for _, folder := range folders {
		listed, err := cluster.Listed(folder)
		if err != nil {
			return "", err
		}
		objects = append(objects, listed...)
	}
	var text strings.Builder
	fmt.Fprintf(&text, componentHead, v1alpha1.DriverName, v1alpha1.NVIDIADriverName)
	for _, object := range objects {
		operations := renamed(object)
		if len(operations) == 0 {
			continue
		}
		kind := object.GroupVersionKind()
		fmt.Fprintf(&text, "- target: {group: %q, version: %s, kind: %s, name: %s}\n  patch: |-\n", kind.Group, kind.Version, kind.Kind, object.GetName())
		for _, o := range operations {
			line, err := compact(o)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&text, "    - %s\n", line)
		}
	}
	return text.String(), nil
}

// renamed returns the operations that give the driver NVIDIA's name in the object.
func renamed(object *unstructured.Unstructured) []operation {
	if object.GetName() == policyName { // contains both names
		return nil
	}
	if object.GetKind() == "ConfigMap" && object.GetName() == configName {
		config, _, _ := unstructured.NestedString(object.Object, "data", configKey)
		named := strings.TrimSuffix(config, "\n") + "\ndriverName: " + v1alpha1.NVIDIADriverName + "\n"
		return []operation{{"replace", "/data/" + configKey, named}}
	}
	var operations []operation
	for _, key := range slices.Sorted(maps.Keys(object.Object)) {
		if key != "metadata" && key != "apiVersion" && key != "kind" {
			operations = append(operations, replaced("/"+key, object.Object[key])...)
		}
	}
	if resource, _, _ := unstructured.NestedString(object.Object, "spec", "extendedResourceName"); resource == wholeGPUName {
		operations = append(operations, operation{Op: "remove", Path: "/spec/extendedResourceName"})
	}
	return operations
}

// replaced returns the operations for every text at the path and below it. Each is guarded by a test of the
// previous value.
func replaced(path string, value any) []operation {
	var operations []operation
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			operations = append(operations, replaced(path+"/"+escaped, v[key])...)
		}
	case []any:
		for i, element := range v {
			operations = append(operations, replaced(path+"/"+strconv.Itoa(i), element)...)
		}
	case string:
		if driverText.MatchString(v) {
			text := driverText.ReplaceAllString(v, "${1}"+v1alpha1.NVIDIADriverName+"${2}")
			operations = append(operations, operation{"test", path, v}, operation{"replace", path, text})
		}
	}
	return operations
}

func compact(o operation) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(o); err != nil {
		return "", fmt.Errorf("write a patch: %w", err)
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}
