package plugin_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	kubefeatures "k8s.io/kubernetes/pkg/features"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// TestPodGroups schedules two gangs while the clique of the first node is fragmented: each gang gets its own clique.
func TestPodGroups(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, kubefeatures.GenericWorkload, true)
	objects := trays(t, "abcabc")
	for _, name := range []string{"g", "h"} {
		gang := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		gang.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: 2}
		objects = append(objects, gang)
	}
	profile := ours("")
	profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedulerconfig.Plugin{Name: "GangScheduling"})
	c := start(t, profile, nil, objects...)
	c.run("single", "gpu", 1)
	if got, want := c.bound("single"), "node-0"; got != want {
		t.Fatalf("the pod that breaks a clique runs on %s, want %s", got, want)
	}
	for i := range 2 {
		for _, group := range []string{"g", "h"} {
			name := fmt.Sprintf("%s-%d", group, i)
			pod := newPod(name, name)
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
			c.create(claimFor(name, "gpu", 4))
			c.create(pod)
		}
	}
	cliques := map[string]string{"node-1": "b", "node-4": "b", "node-2": "c", "node-5": "c"}
	for _, group := range []string{"g", "h"} {
		first, second := c.bound(group+"-0"), c.bound(group+"-1")
		if cliques[first] == "" || cliques[first] != cliques[second] {
			t.Errorf("the pods of %s run on %s and %s, want one of the cliques %v", group, first, second, cliques)
		}
	}
}
