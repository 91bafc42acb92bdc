package render

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// notOptedOut returns the node requirements of components that users can disable per node by label. Only components without dependents are placed
// this way; driver, toolkit and agent are placed by the installer's own labels, in order.
func notOptedOut(components ...string) []corev1.NodeSelectorRequirement {
	keys := []string{v1alpha1.LabelOperands}
	for _, c := range components {
		keys = append(keys, v1alpha1.LabelDeployPrefix+c)
	}
	all := make([]corev1.NodeSelectorRequirement, 0, len(keys))
	for _, key := range keys {
		all = append(all, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"false"}})
	}
	return all
}

// built returns the node requirement of pods with the release's own images that are not placed by the installer's labels: discovery precedes those. NVIDIA's
// images support several architectures.
func built(in Input) []corev1.NodeSelectorRequirement {
	if len(in.Images.Architectures) == 0 {
		return nil
	}
	return []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: in.Images.Architectures}}
}

// chosen converts a label selector to node requirements.
func chosen(selector *metav1.LabelSelector) []corev1.NodeSelectorRequirement {
	if selector == nil {
		return nil
	}
	var all []corev1.NodeSelectorRequirement
	for _, key := range sortedKeys(selector.MatchLabels) {
		all = append(all, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{selector.MatchLabels[key]}})
	}
	for _, e := range selector.MatchExpressions {
		all = append(all, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values})
	}
	return all
}

// required places a pod on nodes that meet all requirements and, if there are alternatives, at least one of these.
func required(all []corev1.NodeSelectorRequirement, alternatives ...corev1.NodeSelectorRequirement) *corev1.Affinity {
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: all}}
	if len(alternatives) > 0 {
		terms = nil
	}
	for _, a := range alternatives {
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: append(slices.Clone(all), a)})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

// isTrue requires that a label has the value true.
func isTrue(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
