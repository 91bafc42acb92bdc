package index_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

const (
	driver  = "gpu.tessera.dev"
	nvidia  = "gpu.nvidia.com"
	foreign = "nic.example.com"
)

// everyShape is the default offer of a node.
var everyShape = wire.Options{Driver: driver, Offer: gpu.Offer{
	Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, Shares: 10,
}}

// newIndex returns an empty index for our driver.
func newIndex() *index.Index { return index.New(index.Config{Drivers: []string{driver}}) }

// machine returns the machine of the catalog as a node with the name.
func machine(tb testing.TB, name, node string) gpu.Node {
	tb.Helper()
	m, err := catalog.FindMachine(name)
	if err != nil {
		tb.Fatal(err)
	}
	n, err := m.Node(node)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// publish returns the ResourceSlices of the node at a pool generation. The version sets the resourceVersion.
func publish(tb testing.TB, n gpu.Node, generation, version int) []*resourceapi.ResourceSlice {
	tb.Helper()
	pool, err := wire.Encode(n, everyShape)
	if err != nil {
		tb.Fatal(err)
	}
	var list []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		list = append(list, &resourceapi.ResourceSlice{
			ObjectMeta: meta("", fmt.Sprintf("%02x-%s-%s", i, n.Name, driver), version),
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &n.Name, SharedCounters: s.SharedCounters, Devices: s.Devices,
				Pool: resourceapi.ResourcePool{Name: pool.Name, Generation: int64(generation), ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	return list
}

// foreignSlice returns a ResourceSlice of another driver. Without a node it applies to all nodes.
func foreignSlice(node, pool string, version int, devices ...string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{
		ObjectMeta: meta("", pool+"-"+node, version),
		Spec: resourceapi.ResourceSliceSpec{
			Driver: foreign, NodeName: &node,
			Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
		},
	}
	if node == "" {
		s.Spec.NodeName, s.Spec.AllNodes = nil, new(true)
	}
	for _, d := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: d})
	}
	return s
}

func meta(namespace, name string, version int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(version)}
}

// result returns the allocation of a device of our driver on the node.
func result(node, device string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: driver, Pool: node + "-" + driver, Device: device}
}

// claimOf returns a claim that holds the devices.
func claimOf(name string, version int, results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: meta("team", name, version)}
	if len(results) > 0 {
		c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}
	}
	return c
}

// whole and mig return the device names of GPU i of the node.
func whole(n gpu.Node, i int) string { return n.GPUs[i].Name() }

func mig(n gpu.Node, i, profile, start int) string {
	return fmt.Sprintf("%s-mig-%d-%d", n.GPUs[i].Name(), profile, start)
}

// set passes all ResourceSlices to the index.
func set(x *index.Index, list []*resourceapi.ResourceSlice) {
	for _, s := range list {
		x.SetSlice(s)
	}
}

// known returns the node, which must be published.
func known(tb testing.TB, x *index.Index, name string) *index.Node {
	tb.Helper()
	n, ok := x.Node(name)
	if !ok {
		tb.Fatalf("node %s is not known", name)
	}
	return n
}
