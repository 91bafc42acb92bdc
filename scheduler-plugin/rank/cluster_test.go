package rank

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

const driver = "gpu.tessera.dev"

// classes are DeviceClasses named by the shape of the devices that they select.
type classes struct{}

func (classes) Get(shape string) (*resourceapi.DeviceClass, error) {
	expression := fmt.Sprintf(`device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"].type == %q`, shape)
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: shape}, Spec: resourceapi.DeviceClassSpec{Selectors: selectors(expression)}}, nil
}

func selectors(expressions ...string) []resourceapi.DeviceSelector {
	var list []resourceapi.DeviceSelector
	for _, e := range expressions {
		list = append(list, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
	}
	return list
}

// cluster is an index and what was put into it.
type cluster struct {
	index  *index.Index
	reader *requirements.Reader
	slices map[string][]*resourceapi.ResourceSlice
	events int
}

func newCluster() *cluster {
	c := &cluster{index: index.New(index.Config{Drivers: []string{driver}}), slices: map[string][]*resourceapi.ResourceSlice{}}
	c.reader = requirements.NewReader(classes{}, c.index)
	return c
}

// pool returns what a machine publishes.
func pool(tb testing.TB, machine, node string) wire.Pool {
	tb.Helper()
	n := gputest.Node(tb, machine)
	n.Name = node
	p, err := wire.Encode(n, wire.Options{Driver: driver, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare}, Shares: 4}})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// join publishes the pool for the node. Nodes may share the devices of one pool.
func (c *cluster) join(node string, p wire.Pool) {
	c.leave(node)
	c.events++
	for i, s := range p.Slices {
		one := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i), ResourceVersion: fmt.Sprint(c.events), UID: types.UID(fmt.Sprintf("%s-%d-%d", node, i, c.events))},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node, SharedCounters: s.SharedCounters, Devices: s.Devices,
				Pool: resourceapi.ResourcePool{Name: wire.PoolName(node, driver), Generation: 1, ResourceSliceCount: int64(len(p.Slices))},
			},
		}
		c.slices[node] = append(c.slices[node], one)
		c.index.SetSlice(one)
	}
}

func (c *cluster) leave(node string) {
	for _, one := range c.slices[node] {
		c.index.DeleteSlice(one)
	}
	delete(c.slices, node)
}

// claim returns a claim that holds the devices of a choice on the node.
func (c *cluster) claim(name string, n *index.Node, choice fit.Choice) *resourceapi.ResourceClaim {
	c.events++
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(name), ResourceVersion: fmt.Sprint(c.events),
	}}
	allocation := &resourceapi.AllocationResult{}
	for _, pick := range choice.Picks {
		for _, i := range pick.Devices {
			allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
				Request: "request", Driver: driver, Pool: n.Pool, Device: n.Devices[i].Name,
			})
		}
	}
	claim.Status.Allocation = allocation
	return claim
}

// demand returns the requirements of a pod for count devices of the class.
func (c *cluster) demand(tb testing.TB, class string, count int64, expressions ...string) *requirements.PodRequirements {
	tb.Helper()
	d, err := c.reader.Read([]*resourceapi.ResourceClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "request", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count, Selectors: selectors(expressions...),
			},
		}}}},
	}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func anywhere(string) bool { return true }
