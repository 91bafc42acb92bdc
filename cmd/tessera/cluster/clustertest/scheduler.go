package clustertest

import (
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Scheduler adds the Deployment of the scheduler with the configuration in a file.
func (s *Scene) Scheduler(file string) {
	s.tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultSystemNamespace, Name: "config-5k2"}, Data: map[string]string{"config.yaml": string(text)}})
	running := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultSystemNamespace, Name: "tessera-scheduler"}}
	running.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config-5k2"}},
	}}}
	s.Add(running)
}

// ProfileClass adds a DeviceClass of the MIG devices of a profile.
func (s *Scene) ProfileClass(name, profile string) {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: fmt.Sprintf(`device.driver == %q && device.attributes[%[1]q].type == "mig" && device.attributes[%[1]q].profile == %[2]q`, Driver, profile),
	}}}
	s.Add(class)
}
