package render_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// TestDiscoveryLooksAtNodes checks that the discovery selects nodes by their labels, and keeps nodes with a GPUNode when Node Feature Discovery removes
// them.
func TestDiscoveryLooksAtNodes(t *testing.T) {
	const pci, kernel = "feature.node.kubernetes.io/pci-0302_10de.present", "feature.node.kubernetes.io/kernel-version.full"
	for _, c := range []struct {
		name            string
		labels          map[string]string
		auto, nfd, scan bool
	}{
		{"nothing known", nil, true, false, true},
		{"labelled, with a GPU", map[string]string{kernel: "6.8", pci: "true"}, true, true, true},
		{"labelled, without", map[string]string{kernel: "6.8"}, false, false, true},
		{"labels lost", map[string]string{v1alpha1.LabelPresent: "true"}, true, true, true},
		{"labels lost in part", map[string]string{kernel: "6.8", v1alpha1.LabelPresent: "true"}, true, true, true},
		{"opted out", map[string]string{v1alpha1.LabelOperands: "false", pci: "true"}, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for source, want := range map[v1alpha1.DiscoverySource]bool{v1alpha1.DiscoverAuto: c.auto, v1alpha1.DiscoverNFD: c.nfd, v1alpha1.DiscoverScan: c.scan} {
				in := plain()
				in.Policy.Spec.Discovery.Source = source
				pod := one[*appsv1.DaemonSet](t, objects(t, in), "tessera-discovery").Spec.Template.Spec
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kubernetes.io/os": "linux"}}}
				for key, value := range c.labels {
					node.Labels[key] = value
				}
				got, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: pod}).Match(node)
				if err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("%s: looked at: %v, want %v", source, got, want)
				}
			}
		})
	}
}

// TestDiscoveryLeavesOtherNodesAlone checks that a policy with a nodeSelector places no operand on other nodes, including the discovery.
func TestDiscoveryLeavesOtherNodesAlone(t *testing.T) {
	in := plain()
	in.Policy.Spec.NodeSelector = &metav1.LabelSelector{
		MatchLabels:      map[string]string{"pool": "gpu"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "old", Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: one[*appsv1.DaemonSet](t, objects(t, in), "tessera-discovery").Spec.Template.Spec})
	for _, c := range []struct {
		labels map[string]string
		want   bool
	}{
		{map[string]string{"pool": "gpu"}, true},
		{map[string]string{"pool": "gpu", "old": ""}, false},
		{map[string]string{}, false},
	} {
		c.labels["kubernetes.io/os"] = "linux"
		got, err := affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}})
		if err != nil || got != c.want {
			t.Errorf("%v: looked at: %v (%v), want %v", c.labels, got, err, c.want)
		}
	}
}
