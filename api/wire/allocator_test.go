package wire_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
)

// features are those of the allocator in Kubernetes 1.37 with default settings.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true,
	DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
}

// compiled caches the CEL expressions of all tests, because compiling is slower than allocating.
var compiled = cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})

// classes lists the DeviceClasses, one for each shape.
type classes struct{}

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

func (classes) Get(shape string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: shape},
		Spec:       resourceapi.DeviceClassSpec{Selectors: selectors(fmt.Sprintf(`device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"].type == %q`, shape))},
	}, nil
}

func selectors(expressions ...string) []resourceapi.DeviceSelector {
	var list []resourceapi.DeviceSelector
	for _, e := range expressions {
		list = append(list, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
	}
	return list
}

// scheduler allocates on one node with kube-scheduler's allocator.
type scheduler struct {
	t      rapid.TB
	ctx    context.Context
	node   gpu.Node
	slices []*resourceapi.ResourceSlice
	// held are the results of existing claims, by claim number.
	held map[int]resourceapi.DeviceRequestAllocationResult
	next int
}

func newScheduler(ctx context.Context, t rapid.TB, n gpu.Node, o wire.Options) *scheduler {
	t.Helper()
	o.Full = true // for requests of one placement
	pool, err := wire.Encode(n, o)
	if err != nil {
		t.Fatal(err)
	}
	return &scheduler{
		t: t, ctx: ctx, node: n, slices: published(n.Name, pool),
		held: map[int]resourceapi.DeviceRequestAllocationResult{},
	}
}

// request is a request of a claim.
type request struct {
	shape    gpu.Shape
	selector string
	capacity map[resourceapi.QualifiedName]resource.Quantity
	admin    bool
}

// on requests a device of the GPU.
func on(g gpu.GPU, shape gpu.Shape) request {
	attribute := map[bool]resourceapi.QualifiedName{true: wire.ParentUUID, false: wire.UUID}[shape == gpu.MIG]
	return request{shape: shape, selector: fmt.Sprintf(`device.attributes["gpu.tessera.dev"].%s == %q`, attribute, g.UUID)}
}

// exactly requests one device.
func exactly(g gpu.GPU, u gpu.Use) request {
	r := on(g, u.Shape)
	if u.Shape == gpu.MIG {
		r.selector += fmt.Sprintf(` && device.attributes["gpu.tessera.dev"].migProfileID == %d && device.attributes["gpu.tessera.dev"].migStart == %d`, u.Placement.Profile, u.Placement.Start)
	}
	return r
}

// profile requests a device with the MIG profile on the GPU.
func profile(g gpu.GPU, name string) request {
	r := on(g, gpu.MIG)
	r.selector += fmt.Sprintf(` && device.attributes["gpu.tessera.dev"].profile == %q`, name)
	return r
}

// allocate returns the number of the claim that was allocated, or false if no device is available.
func (s *scheduler) allocate(r request) (int, bool) {
	s.t.Helper()
	exact := &resourceapi.ExactDeviceRequest{
		DeviceClassName: r.shape.String(), AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}
	if r.selector != "" {
		exact.Selectors = selectors(r.selector)
	}
	if r.capacity != nil {
		exact.Capacity = &resourceapi.CapacityRequirements{Requests: r.capacity}
	}
	if r.admin {
		exact.AdminAccess = new(true)
	}
	allocator, err := structured.NewAllocator(s.ctx, features, s.state(), classes{}, s.slices, compiled)
	if err != nil {
		s.t.Fatal(err)
	}
	s.next++
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", s.next), UID: types.UID(fmt.Sprintf("uid-%d", s.next))},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "request", Exactly: exact}}}},
	}
	result, err := allocator.Allocate(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name}}, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(result) == 0 {
		return 0, false
	}
	s.held[s.next] = result[0].Devices.Results[0]
	return s.next, true
}

// state returns what the scheduler has recorded about existing claims.
func (s *scheduler) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, r := range s.held {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		switch {
		case r.AdminAccess != nil && *r.AdminAccess:
		case r.ShareID != nil:
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		default:
			state.AllocatedDevices.Insert(id)
		}
	}
	return state
}

// must allocates the request and returns the number of the claim.
func (s *scheduler) must(r request) int {
	s.t.Helper()
	n, ok := s.allocate(r)
	if !ok {
		s.t.Fatalf("%v %s: refused", r.shape, r.selector)
	}
	return n
}

// mustNot checks that the request is not allocated.
func (s *scheduler) mustNot(r request) {
	s.t.Helper()
	if n, ok := s.allocate(r); ok {
		s.t.Fatalf("%v %s: got %s", r.shape, r.selector, s.held[n].Device)
	}
}

func (s *scheduler) release(claim int) { delete(s.held, claim) }

func TestSevenSlicesFit(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	s := newScheduler(t.Context(), t, node, offering(gpu.Whole, gpu.MIG))
	g := node.GPUs[1]
	var claims, starts []int
	for range 7 {
		claims = append(claims, s.must(profile(g, "1g.10gb")))
	}
	for _, c := range claims {
		d, err := wire.Decode(s.held[c], node, offering())
		if err != nil {
			t.Fatal(err)
		}
		starts = append(starts, d.Placement.Start)
	}
	if diff := cmp.Diff([]int{6, 4, 5, 0, 1, 2, 3}, starts); diff != "" {
		t.Errorf("order in which a first-fit scheduler fills a GPU (-want +got):\n%s", diff)
	}
	s.mustNot(profile(g, "1g.10gb"))
	s.mustNot(on(g, gpu.MIG))
	s.mustNot(on(g, gpu.Whole))
	s.must(on(node.GPUs[0], gpu.Whole))
	s.release(claims[3])
	s.must(profile(g, "1g.10gb"))
}

func TestShapesExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, machine := range []string{"h100x2", "t4x1", "rtxpro6000x4"} {
		node := gputest.Node(t, machine)
		g := node.GPUs[0]
		shapes := []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS}
		for _, first := range shapes {
			s := newScheduler(t.Context(), t, node, offering(append(shapes, gpu.Monitor)...))
			claim, ok := s.allocate(on(g, first))
			if want := first != gpu.MIG || g.Geometry != nil; ok != want {
				t.Fatalf("%s: first %v: %v", machine, first, ok)
			}
			if !ok {
				continue
			}
			for _, second := range shapes {
				if second != first || first == gpu.Whole {
					s.mustNot(on(g, second))
				}
			}
			s.must(request{shape: gpu.Monitor, selector: on(g, gpu.Monitor).selector, admin: true})
			s.must(request{shape: gpu.Monitor, selector: on(g, gpu.Monitor).selector, admin: true})
			s.release(claim)
			s.must(on(g, gpu.Whole))
		}
	}
}

func TestSharesRunOut(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	g := node.GPUs[0]
	tests := []struct {
		name  string
		shape gpu.Shape
		// capacity is what each claim requests.
		capacity map[resourceapi.QualifiedName]resource.Quantity
		// want is how many claims one GPU serves.
		want int
	}{
		{"equal parts", gpu.TimeShare, nil, 10},
		{"half of the memory", gpu.TimeShare, map[resourceapi.QualifiedName]resource.Quantity{wire.Memory: resource.MustParse("39Gi")}, 2},
		{"two shares each", gpu.MPS, map[resourceapi.QualifiedName]resource.Quantity{wire.Shares: resource.MustParse("2")}, 5},
		{"a third of the compute", gpu.MPS, map[resourceapi.QualifiedName]resource.Quantity{wire.Compute: resource.MustParse("33")}, 3},
		{"more than the GPU", gpu.TimeShare, map[resourceapi.QualifiedName]resource.Quantity{wire.Memory: resource.MustParse("81Gi")}, 0},
	}
	for _, test := range tests {
		s := newScheduler(t.Context(), t, node, offering(gpu.TimeShare, gpu.MPS))
		r := on(g, test.shape)
		r.capacity = test.capacity
		got := 0
		for ; got < 20; got++ {
			if _, ok := s.allocate(r); !ok {
				break
			}
		}
		if got != test.want {
			t.Errorf("%s: %d claims on one GPU, want %d", test.name, got, test.want)
		}
	}
}

func TestWithheldSlicesRefuse(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	free := gputest.Node(t, "h100x2")
	node.GPUs[0].Withheld = gpu.SpanMask(1, 1)
	o := offering(gpu.Whole, gpu.MIG)
	if diff := cmp.Diff(devices(encode(t, free, o)), devices(encode(t, node, o))); diff != "" {
		t.Errorf("a withheld slice changed the devices (-free +withheld):\n%s", diff)
	}
	s := newScheduler(t.Context(), t, node, o)
	g := node.GPUs[0]
	s.mustNot(on(g, gpu.Whole))
	s.mustNot(profile(g, "7g.80gb"))
	s.mustNot(profile(g, "4g.40gb"))
	s.mustNot(exactly(g, gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 9, Start: 0, Size: 4}}))
	s.must(exactly(g, gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 9, Start: 4, Size: 4}}))
	s.must(exactly(g, gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 14, Start: 2, Size: 2}}))
	s.must(exactly(g, gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 19, Start: 0, Size: 1}}))
	s.mustNot(on(g, gpu.MIG))
}

// TestCountersAgreeWithTheModel checks on random sequences that kube-scheduler's allocator, which has only attributes and
// counters, allocates a device if and only if it fits by the model.
func TestCountersAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, machine := range []string{"h100x2", "a30x4l40sx4", "rtxpro6000x4", "t4x1"} {
		node := gputest.Node(t, machine)
		t.Run(machine, rapid.MakeCheck(func(t *rapid.T) {
			n := node
			n.GPUs = append([]gpu.GPU(nil), node.GPUs[:1]...)
			g := &n.GPUs[0]
			if rapid.Bool().Draw(t, "withhold") {
				g.Withheld = gpu.Mask(rapid.Uint16().Draw(t, "withheld"))
			}
			o := offering(gpu.Whole, gpu.MIG)
			s := newScheduler(ctx, t, n, o)
			uses := g.Uses(o.Offer)
			occupancy := g.Geometry.Empty().Withhold(g.Withheld)
			holders := map[int]gpu.Use{}
			for range 8 {
				if len(holders) > 0 && rapid.IntRange(0, 3).Draw(t, "release") == 0 {
					claim := rapid.SampledFrom(sets.List(sets.KeySet(holders))).Draw(t, "claim")
					s.release(claim)
					var err error
					if occupancy, err = occupancy.Release(holders[claim]); err != nil {
						t.Fatal(err)
					}
					delete(holders, claim)
				}
				use := rapid.SampledFrom(uses).Draw(t, "use")
				claim, got := s.allocate(exactly(*g, use))
				after, err := occupancy.Take(use)
				if got != (err == nil) {
					t.Fatalf("%v: the allocator returns %v, the model %v", use, got, err)
				}
				if got {
					occupancy, holders[claim] = after, use
				}
			}
		}))
	}
}
