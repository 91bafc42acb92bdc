package requirements_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

const driver = "gpu.tessera.dev"

// features are the allocator's with Kubernetes 1.37 as it is installed.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true,
	DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
}

// compiled holds the CEL expressions of all tests: compiling costs more than allocating.
var compiled = cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})

// classes are DeviceClasses by name: the expressions of their selectors.
type classes map[string][]string

// shapes are the classes of the product.
func shapes() classes {
	c := classes{"any": nil, "foreign": {`device.driver == "nic.example.com"`}}
	for _, shape := range []string{"gpu", "mig", "timeshare", "mps", "monitor"} {
		c[shape] = []string{fmt.Sprintf(`device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"].type == %q`, shape)}
	}
	return c
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	expressions, ok := c[name]
	if !ok {
		return nil, fmt.Errorf("device class %s: not found", name)
	}
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: selectors(expressions...)}}, nil
}

func selectors(expressions ...string) []resourceapi.DeviceSelector {
	var list []resourceapi.DeviceSelector
	for _, e := range expressions {
		list = append(list, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
	}
	return list
}

// published returns the slices of a machine that offers all shapes.
func published(tb testing.TB, machine, name string) []*resourceapi.ResourceSlice {
	tb.Helper()
	return publishedAs(tb, machine, name, wire.Options{Driver: driver, Offer: gpu.Offer{
		Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS}, Shares: 10,
	}})
}

// publishedAs returns the slices of a machine with the options.
func publishedAs(tb testing.TB, machine, name string, o wire.Options) []*resourceapi.ResourceSlice {
	tb.Helper()
	n := gputest.Node(tb, machine)
	n.Name = name
	for i := range n.GPUs {
		n.GPUs[i].UUID = catalog.UUID(name, i)
	}
	pool, err := wire.Encode(n, o)
	if err != nil {
		tb.Fatal(err)
	}
	var list []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		list = append(list, slice(name, driver, pool.Name, resourceapi.ResourceSliceSpec{SharedCounters: s.SharedCounters, Devices: s.Devices}))
		list[i].Name = fmt.Sprintf("%02x-%s", i, name)
		list[i].Spec.Pool.ResourceSliceCount = int64(len(pool.Slices))
	}
	return list
}

// slice returns the only slice of a pool on the node.
func slice(node, driver, pool string, spec resourceapi.ResourceSliceSpec) *resourceapi.ResourceSlice {
	spec.Driver, spec.NodeName = driver, &node
	spec.Pool = resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1}
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: pool, ResourceVersion: "1"}, Spec: spec}
}

// site is one node in the representations of the allocator and of the index.
type site struct {
	name   string
	slices []*resourceapi.ResourceSlice
	index  *index.Index
	claims []*resourceapi.ResourceClaim
}

func newSite(name string, slices []*resourceapi.ResourceSlice) *site {
	s := &site{name: name, slices: slices, index: index.New(index.Config{Drivers: []string{driver}})}
	for _, one := range slices {
		s.index.SetSlice(one)
	}
	return s
}

func (s *site) node(t rapid.TB) *index.Node {
	t.Helper()
	n, ok := s.index.Node(s.name)
	if !ok {
		t.Fatalf("node %s is not in the index", s.name)
	}
	return n
}

// allocate runs the allocator for the claims with these slices.
func (s *site) allocate(ctx context.Context, c classes, slices []*resourceapi.ResourceSlice, claims ...*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	allocator, err := structured.NewAllocator(ctx, features, s.state(), c, slices, compiled)
	if err != nil {
		return nil, err
	}
	return allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, claims)
}

// hold writes down what a claim was given.
func (s *site) hold(claim *resourceapi.ResourceClaim, result resourceapi.AllocationResult) {
	number := len(s.claims) + 1
	held := claim.DeepCopy()
	held.Name, held.Namespace = fmt.Sprintf("held-%d", number), "default"
	held.UID, held.ResourceVersion = types.UID(held.Name), fmt.Sprint(number)
	held.Status.Allocation = &result
	s.claims = append(s.claims, held)
	s.index.SetClaim(held)
}

// state is the allocator's state of allocated claims.
func (s *site) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range s.claims {
		for _, r := range claim.Status.Allocation.Devices.Results {
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if r.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
	return state
}

// only returns the slices with the devices that are kept.
func only(slices []*resourceapi.ResourceSlice, keep sets.Set[string]) []*resourceapi.ResourceSlice {
	var list []*resourceapi.ResourceSlice
	for _, one := range slices {
		pruned := one.DeepCopy()
		pruned.Spec.Devices = nil
		for _, d := range one.Spec.Devices {
			if keep.Has(d.Name) {
				pruned.Spec.Devices = append(pruned.Spec.Devices, d)
			}
		}
		list = append(list, pruned)
	}
	return list
}
