package action

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/installer/render"
)

// A driver DaemonSet is written when its pod spec differs, also when it has fewer fields than before, and not when only its labels differ.
func TestFrozenDaemonSetIsComparedByItsPodSpec(t *testing.T) {
	tests := map[string]struct {
		change func(*render.Input)
		same   bool
	}{
		"nothing":           {func(*render.Input) {}, true},
		"a toleration less": {func(in *render.Input) { in.Drivers[0].Spec.Tolerations = nil }, false},
		"no limits":         {func(in *render.Input) { in.Drivers[0].Spec.Resources = nil }, false},
		"a label more":      {func(in *render.Input) { in.Policy.Spec.DaemonSets.Labels = map[string]string{"own": "yes"} }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			have, want := driverSet(t, func(*render.Input) {}), driverSet(t, test.change)
			if want.Name != have.Name {
				t.Fatalf("it is another driver: %s instead of %s", want.Name, have.Name)
			}
			if got := matchesRendered(want, have, true); got != test.same {
				t.Errorf("got %v", got)
			}
		})
	}
}

// driverSet is the DaemonSet of a driver with a toleration and limits, changed.
func driverSet(t *testing.T, change func(*render.Input)) *appsv1.DaemonSet {
	t.Helper()
	in := render.Input{
		Namespace: "tessera-system",
		Images: render.Images{
			Node: "node:v1", Scheduler: "scheduler:v1", Driver: "driver", DriverVersion: "580.1", DCGM: "dcgm:v1", DCGMExporter: "exporter:v1",
		},
		Drivers:  []render.DriverSet{{Owner: "ClusterPolicy/default", Host: render.Host{OS: "ubuntu24.04"}}},
		Contents: map[string]string{},
	}
	in.Drivers[0].Spec.Tolerations = []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}
	in.Drivers[0].Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	change(&in)
	objects, err := render.Objects(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if set, ok := object.(*appsv1.DaemonSet); ok && set.Labels[render.LabelName] == "tessera-driver" {
			return set
		}
	}
	t.Fatal("no driver is rendered")
	return nil
}
