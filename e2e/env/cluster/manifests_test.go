package cluster

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// TestManifestsPointAtFakeGPUs checks that the objects in a lab differ from the shipped ones only in the roots.
func TestManifestsPointAtFakeGPUs(t *testing.T) {
	list, err := Manifests(binaries.Kubernetes137)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range list {
		if object.GetKind() != "ConfigMap" {
			continue
		}
		text, _, err := unstructured.NestedString(object.Object, "data", configKey)
		if err != nil {
			t.Fatal(err)
		}
		var config struct{ Roots map[string]string }
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"host": "/host", "driver": "/host/run/fakegpu/driver", "dev": "/host/run/fakegpu/driver",
			"proc": "/host/run/fakegpu/proc", "sys": "/host/run/fakegpu/sys",
		}
		if diff := cmp.Diff(want, config.Roots); diff != "" {
			t.Errorf("roots (-want +got):\n%s", diff)
		}
		return
	}
	t.Error("no ConfigMap among the manifests")
}

// TestSchedulerComponentNeedsItsScheduler checks that a lab with kube-scheduler lacks the policy that refuses its allocations.
func TestSchedulerComponentNeedsItsScheduler(t *testing.T) {
	for version, want := range map[string]bool{binaries.Kubernetes137: true, binaries.Kubernetes136: false} {
		list, err := Manifests(version)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(list, func(object *unstructured.Unstructured) bool { return object.GetName() == "allocations.gpu.tessera.dev" })
		if got != want {
			t.Errorf("Kubernetes %s: policy for allocations %t, want %t", version, got, want)
		}
	}
}
