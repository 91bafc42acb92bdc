package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// driverSet is the DaemonSet of a driver.
func driverSet(digest, image string) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: controllertest.Namespace, Name: "tessera-driver-" + v1alpha1.DriverLabelValue(digest),
		Labels: map[string]string{render.LabelManagedBy: render.ManagedBy, render.LabelName: "tessera-driver"},
	}}
	set.Spec.Template.Annotations = map[string]string{render.AnnotationDigest: digest}
	set.Spec.Template.Spec = corev1.PodSpec{
		NodeSelector: map[string]string{v1alpha1.LabelDriver: v1alpha1.DriverLabelValue(digest)}, Containers: []corev1.Container{{Name: "nvidia-driver-ctr", Image: image}},
	}
	return set
}

// TestPlacedDriver reads the driver of a node in service whose GPUNode was deleted and created again from its DaemonSet.
func TestPlacedDriver(t *testing.T) {
	t.Parallel()
	const digest = "0123456789abcdef"
	set := driverSet(digest, "registry.example.com:5000/driver:580.95.05-ubuntu24.04")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
		v1alpha1.LabelDriver: v1alpha1.DriverLabelValue(digest), v1alpha1.LabelAgent: "default", v1alpha1.LabelReady: "true",
	}}}
	r := New(Config{Cluster: action.Cluster{Client: controllertest.NewPlainClient(t, set, node), Namespace: controllertest.Namespace}})
	s := &nodestate.Observation{KubeNode: node, Assignment: controllertest.Policies{}.Catalog().Assign(node)}
	s.Node = nodestate.ObserveNode(node)
	want := &v1alpha1.DesiredDriver{
		Source: v1alpha1.DriverContainer, Digest: digest, Version: "580.95.05", Image: "registry.example.com:5000/driver:580.95.05-ubuntu24.04",
	}
	got, err := r.placedDriver(t.Context(), s)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, driver (-want +got):\n%s", err, diff)
	}
	s.Node.Labels.Driver = "nobodyknows1"
	if got, err := r.placedDriver(t.Context(), s); err != nil || got != nil {
		t.Errorf("error %v, an unknown driver: %+v", err, got)
	}
}

// A DaemonSet of the name that is no driver of the installer places none.
func TestPlacedDriverOfAnotherProgram(t *testing.T) {
	t.Parallel()
	const digest = "0123456789abcdef"
	for name, change := range map[string]func(*appsv1.DaemonSet){
		"without a digest":    func(s *appsv1.DaemonSet) { s.Spec.Template.Annotations = nil },
		"without a container": func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.Containers = nil },
	} {
		set, s := driverSet(digest, "driver:580.1"), &nodestate.Observation{}
		change(set)
		r := New(Config{Cluster: action.Cluster{Client: controllertest.NewPlainClient(t, set), Namespace: controllertest.Namespace}})
		s.Node.Labels.Driver = v1alpha1.DriverLabelValue(digest)
		if got, err := r.placedDriver(t.Context(), s); err != nil || got != nil {
			t.Errorf("%s: error %v, driver %+v", name, err, got)
		}
	}
}

// TestRemember writes what runs into the new GPUNode, as good where the node is in service.
func TestRemember(t *testing.T) {
	t.Parallel()
	driver := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "0123456789abcdef"}
	gpunode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1alpha1.GPUNodeSpec{AgentPool: "training"}}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, now := fake.NewClientBuilder().WithScheme(scheme).WithObjects(gpunode).WithStatusSubresource(gpunode).Build(), &v1alpha1.GPUNode{}
	r := New(Config{Cluster: action.Cluster{Client: c}})
	for _, good := range []bool{false, true} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(gpunode), now); err != nil {
			t.Fatal(err)
		}
		s := &nodeObservation{Observation: nodestate.Observation{GPUNode: now}}
		s.Spec, s.Status = now.Spec, now.Status
		if err := (nodeStep{Reconciler: r, observation: s, decision: phase.Decision{Action: phase.Adopt, Driver: driver, Good: good}}).perform(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(gpunode), now); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(now.Spec.Driver, driver) || now.Spec.AgentPool != "training" || (now.Status.LastGoodDriver != nil) != good {
			t.Errorf("good %t: %+v, %+v", good, now.Spec, now.Status)
		}
	}
}
