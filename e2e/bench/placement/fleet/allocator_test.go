package fleet

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
)

const driver = "gpu.tessera.dev"

// classes has a class per profile.
type classes struct{}

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

func (classes) Get(profile string) (*resourceapi.DeviceClass, error) {
	expression := fmt.Sprintf(`device.attributes[%q].type == "mig" && device.attributes[%q].profile == %q`, driver, driver, profile)
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: profile},
		Spec:       resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}},
	}, nil
}

// inTree is kube-scheduler's allocator over the devices that our agent publishes for a node.
type inTree struct {
	node   gpu.Node
	pool   string
	slices []*resourceapi.ResourceSlice
	cache  *cel.Cache
}

func newInTree(t *testing.T) inTree {
	node := gputest.Node(t, "h100x8")
	pool, err := wire.Encode(node, wire.Options{Driver: driver, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS}, Shares: 10}})
	if err != nil {
		t.Fatal(err)
	}
	a := inTree{node: node, pool: pool.Name, cache: cel.NewCache(10, cel.Features{})}
	for i, content := range pool.Slices {
		a.slices = append(a.slices, &resourceapi.ResourceSlice{
			// Agents number the names, and the allocator sorts by them.
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02x-%s", i, node.Name)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node.Name,
				Pool:    resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				Devices: content.Devices, SharedCounters: content.SharedCounters,
			},
		})
	}
	return a
}

// device returns the name of a placement on one of the node's GPUs.
func (a inTree) device(s *States, c Choice) string {
	return wire.DeviceName(gpu.Device{GPU: a.node.GPUs[c.GPU].Name(), Use: gpu.Use{Shape: gpu.MIG, Placement: s.Placements[c.Placement]}})
}

// allocate returns the device that a claim for the profile gets, empty when there is none.
func (a inTree) allocate(ctx context.Context, held sets.Set[structured.DeviceID], profile string) (string, error) {
	state := structured.AllocatedState{
		AllocatedDevices:         held,
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	features := structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true,
		DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
	}
	allocator, err := structured.NewAllocator(ctx, features, state, classes{}, a.slices, a.cache)
	if err != nil {
		return "", err
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", UID: "uid"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name:    "request",
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: profile, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		}}}},
	}
	result, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.node.Name}}, []*resourceapi.ResourceClaim{claim})
	if err != nil || len(result) == 0 {
		return "", err
	}
	return result[0].Devices.Results[0].Device, nil
}

// TestFirstFitIsTheAllocators checks on random states of a node that the bench's first fit makes the
// choices of kube-scheduler's own allocator.
func TestFirstFitIsTheAllocators(t *testing.T) {
	t.Parallel()
	s, allocator, ctx := states(t, "h100-80"), newInTree(t), t.Context()
	policy := FirstFit{Published(s)}
	rapid.Check(t, func(t *rapid.T) {
		f, held := New(s, len(allocator.node.GPUs)), sets.New[structured.DeviceID]()
		for range rapid.IntRange(0, 40).Draw(t, "held") {
			c := Choice{
				GPU:       rapid.IntRange(0, len(allocator.node.GPUs)-1).Draw(t, "gpu"),
				Placement: rapid.IntRange(0, len(s.Placements)-1).Draw(t, "placement"),
			}
			if s.Taken[f.State[c.GPU]][c.Placement] != None {
				f.Take(c)
				held.Insert(structured.MakeDeviceID(driver, allocator.pool, allocator.device(s, c)))
			}
		}
		profile := rapid.IntRange(0, len(s.Profiles)-1).Draw(t, "profile")
		want := ""
		if c, ok := policy.Choose(f, arrivals.Demand{Kind: profile}); ok {
			want = allocator.device(s, c)
		}
		got, err := allocator.allocate(ctx, held, s.Profiles[profile].Name)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("%s: the allocator takes %q, the bench %q", s.Profiles[profile].Name, got, want)
		}
	})
}
