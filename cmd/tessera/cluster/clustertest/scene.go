// Package clustertest builds clusters with Tessera's objects for tests: ResourceSlices of the machines in the catalogue, as the agent publishes
// them, and claims as the scheduler and the agents write them.
package clustertest

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Driver is the driver of every scene.
const Driver = v1alpha1.DriverName

// Scene is the objects of a cluster.
type Scene struct {
	tb      testing.TB
	Objects []runtime.Object
}

// New returns an empty scene.
func New(tb testing.TB) *Scene {
	tb.Helper()
	return &Scene{tb: tb}
}

// Cluster returns a connection to fake clients with the objects of the scene.
func (s *Scene) Cluster() *cluster.Cluster {
	s.tb.Helper()
	kinds := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(kinds); err != nil {
		s.tb.Fatal(err)
	}
	var standard, own []runtime.Object
	for _, object := range s.Objects {
		if _, _, err := kinds.ObjectKinds(object); err == nil {
			own = append(own, object)
			continue
		}
		standard = append(standard, object)
	}
	return &cluster.Cluster{
		Client: fake.NewClientset(standard...), Dynamic: dynamicfake.NewSimpleDynamicClient(kinds, own...), Namespace: "demo",
		Drivers: []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName},
	}
}

// Add adds objects.
func (s *Scene) Add(objects ...runtime.Object) { s.Objects = append(s.Objects, objects...) }

// Node adds a node with the machine, whose GPUs offer all shapes and ten shares each. change, unless nil, is applied to the
// node first.
func (s *Scene) Node(name, machine string, change func(*gpu.Node)) gpu.Node {
	s.tb.Helper()
	m, err := catalog.FindMachine(machine)
	if err != nil {
		s.tb.Fatal(err)
	}
	node, err := m.Node(name)
	if err != nil {
		s.tb.Fatal(err)
	}
	if change != nil {
		change(&node)
	}
	pool, err := wire.Encode(node, wire.Options{Driver: Driver, Offer: gpu.Offer{
		Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, Shares: 10,
	}})
	if err != nil {
		s.tb.Fatal(err)
	}
	for i, content := range pool.Slices {
		s.Add(&resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02x-%s-%s", i, Driver, name)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: Driver, NodeName: &name,
				Pool:           resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				SharedCounters: content.SharedCounters, Devices: content.Devices,
			},
		})
	}
	s.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return node
}

// Result returns the allocation of a device of the node's GPU with the index. A share consumes the capacity of the
// use.
func Result(n gpu.Node, index int, use gpu.Use) resourceapi.DeviceRequestAllocationResult {
	r := resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: Driver, Pool: wire.PoolName(n.Name, Driver),
		Device: wire.DeviceName(gpu.Device{GPU: n.GPUs[index].Name(), Use: use}),
	}
	if use.Shape.Shared() {
		r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
			wire.Memory: *resource.NewQuantity(int64(use.Share.MemoryBytes), resource.BinarySI),
			wire.Shares: *resource.NewQuantity(int64(use.Share.Shares), resource.DecimalSI),
		}
		if use.Shape == gpu.MPS {
			r.ConsumedCapacity[wire.Compute] = *resource.NewQuantity(int64(use.Share.Compute), resource.DecimalSI)
		}
	}
	if use.Shape == gpu.Monitor {
		r.AdminAccess = new(true)
	}
	return r
}

// MIGUse returns the use of a MIG placement.
func MIGUse(profile, start, size int) gpu.Use {
	return gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: profile, Start: start, Size: size}}
}

// Claim adds the claim demo/name with the results; without results it is not allocated.
func (s *Scene) Claim(name, class string, results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, UID: types.UID("claim-" + name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}},
		}}},
	}
	if len(results) > 0 {
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}
	}
	s.Add(claim)
	return claim
}

// Pod adds the pod demo/name on the node, in the phase and with the claim. An allocated claim is reserved
// for the pod.
func (s *Scene) Pod(name, node string, phase corev1.PodPhase, claim *resourceapi.ResourceClaim) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, UID: types.UID("pod-" + name)},
		Spec:       corev1.PodSpec{NodeName: node, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim.Name}}},
		Status:     corev1.PodStatus{Phase: phase},
	}
	if claim.Status.Allocation != nil {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: pod.UID})
	}
	s.Add(pod)
	return pod
}

// Report adds the agent's status of the claim's device with the number: its UUID and the condition Ready.
func Report(claim *resourceapi.ResourceClaim, number int, uuid string, ready metav1.Condition) {
	result := claim.Status.Allocation.Devices.Results[number]
	ready.Type = cluster.Ready
	status := resourceapi.AllocatedDeviceStatus{
		Driver: result.Driver, Pool: result.Pool, Device: result.Device, Conditions: []metav1.Condition{ready},
		Data: &runtime.RawExtension{Raw: []byte(fmt.Sprintf(`{"uuid":%q}`, uuid))},
	}
	if result.ShareID != nil {
		status.ShareID = new(string(*result.ShareID))
	}
	claim.Status.Devices = append(slices.Clone(claim.Status.Devices), status)
}

// Class adds a DeviceClass that selects the driver's devices.
func (s *Scene) Class(name string) {
	s.Add(&resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", Driver)}},
		}},
	})
}
