// Package fleet describes clusters of equal GPU nodes for the benches of the scheduler: nodes, slices,
// allocated claims, and the pods to schedule. Equal descriptions give equal objects.
package fleet

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// Driver is the name of the DRA driver.
const Driver = v1alpha1.DriverName

// machine is the hardware of every node.
const machine = "h100x8"

// Spec describes a cluster.
type Spec struct {
	Nodes int
	// Shapes are the shapes that the nodes offer, in the compact set of attributes; nil is an agent's
	// default, all of them.
	Shapes []gpu.Shape
}

// Fleet makes the objects of a cluster.
type Fleet struct {
	Spec
	hardware catalog.Machine
	options  wire.Options
	// template is a node of the fleet with its name.
	template gpu.Node
	shared   wire.Pool
}

// New returns the fleet.
func New(s Spec) (*Fleet, error) {
	offer, err := v1alpha1.Default().Offer()
	if err != nil {
		return nil, err
	}
	if s.Shapes != nil {
		offer.Shapes = s.Shapes
	}
	f := &Fleet{Spec: s, options: wire.Options{Driver: Driver, Offer: offer}}
	if f.hardware, err = catalog.FindMachine(machine); err != nil {
		return nil, err
	}
	if f.template, err = f.hardware.Node("template"); err != nil {
		return nil, err
	}
	f.shared, err = wire.Encode(f.template, f.options)
	return f, err
}

// Name is the name of a node.
func (f *Fleet) Name(node int) string { return fmt.Sprintf("node-%05d", node) }

// GPUs is the number of GPUs of a node.
func (f *Fleet) GPUs() int { return len(f.template.GPUs) }

// Node is a node, ready and large.
func (f *Fleet) Node(node int) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2Ti"), corev1.ResourcePods: resource.MustParse("250"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name(node), Labels: map[string]string{corev1.LabelHostname: f.Name(node)}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Ready"}},
		},
	}
}

// Slices are the slices that the agent of the node publishes.
func (f *Fleet) Slices(node int) ([]resourceapi.ResourceSlice, error) {
	hardware, err := f.hardware.Node(f.Name(node))
	if err != nil {
		return nil, err
	}
	pool, err := wire.Encode(hardware, f.options)
	return f.objects(node, pool), err
}

// Shared are the slices of a node whose devices are the same objects as those of all other nodes, UUIDs
// included: thousands of nodes fit into the memory of one process. They must not be modified.
func (f *Fleet) Shared(node int) []resourceapi.ResourceSlice { return f.objects(node, f.shared) }

func (f *Fleet) objects(node int, pool wire.Pool) []resourceapi.ResourceSlice {
	name := f.Name(node)
	objects := make([]resourceapi.ResourceSlice, 0, len(pool.Slices))
	for i, content := range pool.Slices {
		objects = append(objects, resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", name, Driver, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: Driver, NodeName: &name,
				Pool:    resourceapi.ResourcePool{Name: wire.PoolName(name, Driver), Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				Devices: content.Devices, SharedCounters: content.SharedCounters,
			},
		})
	}
	return objects
}
