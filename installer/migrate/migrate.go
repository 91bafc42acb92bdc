// Package migrate turns what an administrator wrote for NVIDIA's GPU Operator (ClusterPolicy nvidia.com/v1, NVIDIADriver nvidia.com/v1alpha1, the
// values of its Helm chart, and a configuration of its MIG manager) into objects of ours. It is pure. Every field that is set is converted or
// named, with the reason and what to do instead; what is converted is accepted by our CRDs. Image tags are taken over or left out,
// never made up. Source: NVIDIA/gpu-operator v26.7, api/nvidia/v1, api/nvidia/v1alpha1, deployments/gpu-operator/values.yaml.
package migrate

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The kinds that are read.
const (
	groupNVIDIA   = "nvidia.com"
	kindPolicy    = "ClusterPolicy"
	kindDriver    = "NVIDIADriver"
	sourceValues  = "Helm values"
	sourceMIG     = "MIG manager"
	unknownReason = "is unknown to this release. Check its effect and convert it manually"
)

// Result is what a source becomes.
type Result struct {
	// Policy is absent when only NVIDIADrivers were read.
	Policy  *v1alpha1.ClusterPolicy
	Drivers []v1alpha1.NVIDIADriver
	// Notes are the fields that are set and have no counterpart, in the order of the sources.
	Notes []Note
}

// Note is a field that was not converted.
type Note struct {
	// Source is the object of the field, such as NVIDIADriver h100; Field its path.
	Source, Field string
	// Reason continues "the field …": why it was not converted and what to do.
	Reason string
}

// Source is one document: an object of the GPU Operator, or the values of its chart.
type Source map[string]any

// Read returns the sources in a file; anything that is no object of Kubernetes' form is taken for values of the chart.
func Read(documents [][]byte) ([]Source, error) {
	var sources []Source
	for i, document := range documents {
		var source Source
		if err := yaml.UnmarshalStrict(document, &source); err != nil {
			return nil, fmt.Errorf("read document %d: %w", i+1, err)
		}
		inner, err := source.layouts()
		switch {
		case err != nil:
			return nil, fmt.Errorf("read document %d: %w", i+1, err)
		case inner != nil:
			sources = append(sources, inner)
		case len(source) > 0:
			sources = append(sources, source)
		}
	}
	return sources, nil
}

// layouts returns the configuration of a MIG manager that a ConfigMap holds, as the MIG manager reads it there; nil for any other source.
func (s Source) layouts() (Source, error) {
	data, _ := s["data"].(map[string]any)
	text, ok := data["config.yaml"].(string)
	if s["kind"] != "ConfigMap" || !ok {
		return nil, nil
	}
	var inner Source
	err := yaml.UnmarshalStrict([]byte(text), &inner)
	return inner, err
}

// Convert converts the sources together: at most one policy or values, any number of NVIDIADrivers, and a MIG manager's configuration.
func Convert(sources ...Source) (Result, error) {
	var result Result
	for _, source := range slices.SortedStableFunc(slices.Values(sources), byRank) {
		kind, name, content, err := source.identify()
		if err != nil {
			return Result{}, err
		}
		switch kind {
		case kindDriver:
			result.driver(name, content)
		case sourceMIG:
			result.layouts(content)
		default:
			if result.Policy != nil {
				return Result{}, fmt.Errorf("convert %s: more than one was passed; pass one ClusterPolicy or one values file", kind)
			}
			result.policy(kind, name, content)
		}
	}
	if result.Policy == nil && len(result.Drivers) == 0 && len(result.Notes) == 0 {
		return Result{}, fmt.Errorf("convert: no input found; pass a ClusterPolicy or NVIDIADriver of %s, or the values of the GPU Operator's chart", groupNVIDIA)
	}
	return result, nil
}

// byRank puts the policy before what adds to it.
func byRank(a, b Source) int { return a.rank() - b.rank() }

func (s Source) rank() int {
	switch {
	case s["kind"] == kindDriver:
		return 1
	case s["mig-configs"] != nil:
		return 2
	}
	return 0
}

// identify returns what the source is, its name and the fields that it decides.
func (s Source) identify() (kind, name string, content map[string]any, err error) {
	if s["mig-configs"] != nil {
		return sourceMIG, "", s, nil
	}
	if s["kind"] == nil && s["apiVersion"] == nil {
		return sourceValues, "", s, nil
	}
	version, _ := s["apiVersion"].(string)
	kind, _ = s["kind"].(string)
	if version == groupNVIDIA+"/v1" && kind == kindPolicy || version == groupNVIDIA+"/v1alpha1" && kind == kindDriver {
		content, _ = s["spec"].(map[string]any)
		metadata, _ := s["metadata"].(map[string]any)
		name, _ = metadata["name"].(string)
		return kind, name, content, nil
	}
	return "", "", nil, fmt.Errorf("convert %s %s: it must be a ClusterPolicy of %[3]s/v1, an NVIDIADriver of %[3]s/v1alpha1, or values of the chart", version, kind, groupNVIDIA)
}

// policy converts a ClusterPolicy, or the values of which the chart makes one.
func (r *Result) policy(kind, name string, content map[string]any) {
	r.Policy = &v1alpha1.ClusterPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: kindPolicy},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName},
	}
	spec := &r.Policy.Spec
	c := conversion{source: title(kind, name), content: content, policy: spec, driver: &spec.Driver, upgrade: &spec.Upgrade, result: r}
	c.rules = policyRules()
	if kind == sourceValues {
		c.rules = append(valuesRules(), c.rules...)
	} else {
		c.root = "spec."
	}
	c.run()
	c.place()
}

// driver converts an NVIDIADriver.
func (r *Result) driver(name string, content map[string]any) {
	object := v1alpha1.NVIDIADriver{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: kindDriver},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	c := conversion{source: title(kindDriver, name), root: "spec.", content: content, driver: &object.Spec.DriverSpec, object: &object.Spec, result: r}
	if kind, _ := content["driverType"].(string); kind == "vgpu-host-manager" {
		c.refuse("", content, "configures a driver of vGPU hosts. Set spec.vgpuManager of a ClusterPolicy with image and nodeSelector")
		return
	}
	if content["upgradePolicy"] != nil {
		object.Spec.Upgrade = &v1alpha1.UpgradePolicy{}
		c.upgrade = object.Spec.Upgrade
	}
	c.rules = driverObjectRules()
	c.run()
	if object.Spec.NodeSelector == nil && !object.Spec.Default {
		object.Spec.NodeSelector = &metav1.LabelSelector{} // as there: all nodes
	}
	r.Drivers = append(r.Drivers, object)
}

func title(kind, name string) string {
	if name == "" {
		return kind
	}
	return kind + " " + name
}

// keys are the keys of an object in order.
func keys(object map[string]any) []string { return slices.Sorted(maps.Keys(object)) }
