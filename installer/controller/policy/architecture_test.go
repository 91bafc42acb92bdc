package policy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/render"
)

// TestArchitectureWithoutImages: the policy names a GPU node, found by Node Feature Discovery, for whose architecture the release has no images.
func TestArchitectureWithoutImages(t *testing.T) {
	const fault = "ArchitectureMissing: 1 GPU nodes have an architecture for which the release has no images (amd64), such as n: they get no driver and no " +
		"agent; push images for it and set images.architectures"
	for _, test := range []struct {
		built []string
		arch  string
		want  string
	}{{nil, "arm64", ""}, {[]string{"amd64"}, "amd64", ""}, {[]string{"amd64", "arm64"}, "arm64", ""}, {[]string{"amd64"}, "arm64", fault}} {
		objects := freshCluster()
		objects[2].(*corev1.Node).Labels[corev1.LabelArchStable] = test.arch
		c := controllertest.NewClient(t, objects...)
		r := newReconciler(t, c)
		r.Catalogs = catalog.NewSource(c, controllertest.Namespace, render.Images{
			Node: "node:v1", Scheduler: "scheduler:v1", Driver: "driver", DriverVersion: "580.1", DCGM: "dcgm:v1", DCGMExporter: "exporter:v1", Architectures: test.built,
		})
		if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		if got := degraded(readPolicy(t, c).Status.Conditions); got != test.want {
			t.Errorf("images for %v, node %s: Degraded because of %q, want %q", test.built, test.arch, got, test.want)
		}
	}
}
