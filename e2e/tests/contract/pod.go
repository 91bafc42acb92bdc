package contract

import (
	"errors"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
	"github.com/tessera-gpu/tessera/installer/render"
)

// DriverPod returns the driver pod that the installer renders for a driver set, with the default values of the chart and the ConfigMaps that the set
// refers to. It has no init containers: package nvidia tests these.
func DriverPod(set render.DriverSet, configs machine.Configs) (corev1.PodSpec, error) {
	in := render.Input{
		Namespace: "tessera-system", Images: render.Images{Node: "node", DCGMExporter: "exporter", Scheduler: "scheduler"},
		Drivers: []render.DriverSet{set}, Contents: map[string]string{}, Keys: map[string][]string{},
	}
	for name, data := range configs {
		in.Contents["ConfigMap/"+name] = "content"
		in.Keys["ConfigMap/"+name] = slices.Sorted(maps.Keys(data))
	}
	objects, err := render.Objects(in)
	if err != nil {
		return corev1.PodSpec{}, err
	}
	for _, object := range objects {
		if ds, ok := object.(*appsv1.DaemonSet); ok && strings.HasPrefix(ds.Name, render.OperandDriver+"-") {
			spec := ds.Spec.Template.Spec
			spec.InitContainers = nil
			return spec, nil
		}
	}
	return corev1.PodSpec{}, errors.New("no driver is rendered")
}
