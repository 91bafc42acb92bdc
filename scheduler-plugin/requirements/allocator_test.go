package requirements_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

var (
	drawnSelectors = map[string][]string{
		"gpu": {
			`device.attributes["gpu.tessera.dev"].index < 4`,
			`device.attributes["gpu.tessera.dev"].productName.contains("NVIDIA")`,
			`cel.bind(d, device.attributes["gpu.tessera.dev"], d.index % 2 == 1)`,
			`device.attributes["resource.kubernetes.io"].numaNode == 0`,
		},
		"mig": {
			`device.attributes["gpu.tessera.dev"].profile.startsWith("1g.")`,
			`device.attributes["gpu.tessera.dev"].profile.startsWith("3g.")`,
			`device.capacity["gpu.tessera.dev"].memory.compareTo(quantity("15Gi")) > 0`,
			`device.attributes["gpu.tessera.dev"].index == 0`,
		},
		"timeshare": {`device.attributes["gpu.tessera.dev"].index == 1`},
		"mps":       {`"uuid" in device.attributes["gpu.tessera.dev"]`},
		"any":       {`device.driver == "gpu.tessera.dev"`, `device.allowMultipleAllocations`},
	}
	drawnClasses = []string{"gpu", "mig", "mig", "timeshare", "mps", "any"}
	drawnBinds   = []resourceapi.FullyQualifiedName{
		"gpu.tessera.dev/index", "gpu.tessera.dev/linkIsland", "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot",
		"gpu.tessera.dev/profile", "gpu.tessera.dev/parentUUID", "gpu.tessera.dev/uuid", "other.example.com/index",
	}
	drawnCapacity = map[resourceapi.QualifiedName][]string{
		"memory": {"1", "10Gi", "9500Mi", "79Gi", "100Gi"}, "shares": {"1", "3", "11"}, "compute": {"0", "40", "101"}, "none": {"1"},
	}
)

// allocatorTimeout is for how long the allocator may look for devices.
const allocatorTimeout = 500 * time.Millisecond

func drawWay(t *rapid.T) resourceapi.DeviceSubRequest {
	way := resourceapi.DeviceSubRequest{
		DeviceClassName: rapid.SampledFrom(drawnClasses).Draw(t, "class"),
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           rapid.SampledFrom([]int64{1, 1, 1, 2, 3}).Draw(t, "count"),
	}
	if rapid.IntRange(0, 2).Draw(t, "selected") == 0 {
		way.Selectors = selectors(rapid.SampledFrom(drawnSelectors[way.DeviceClassName]).Draw(t, "selector"))
	}
	if rapid.IntRange(0, 3).Draw(t, "tolerant") == 0 {
		way.Tolerations = []resourceapi.DeviceToleration{{Key: "worn", Operator: resourceapi.DeviceTolerationOpExists}}
	}
	if rapid.IntRange(0, 3).Draw(t, "measured") == 0 {
		name := rapid.SampledFrom([]resourceapi.QualifiedName{"memory", "memory", "shares", "compute", "none"}).Draw(t, "capacity")
		quantity := resource.MustParse(rapid.SampledFrom(drawnCapacity[name]).Draw(t, "quantity"))
		way.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{name: quantity}}
	}
	return way
}

func drawRequest(t *rapid.T, name string) resourceapi.DeviceRequest {
	r := resourceapi.DeviceRequest{Name: name}
	if rapid.IntRange(0, 3).Draw(t, "choice") == 0 {
		for i := range rapid.SampledFrom([]int{1, 2, 3, 3, 8}).Draw(t, "ways") {
			way := drawWay(t)
			way.Name = fmt.Sprintf("way-%d", i)
			r.FirstAvailable = append(r.FirstAvailable, way)
		}
		return r
	}
	way := drawWay(t)
	r.Exactly = &resourceapi.ExactDeviceRequest{
		DeviceClassName: way.DeviceClassName, AllocationMode: way.AllocationMode, Count: way.Count,
		Selectors: way.Selectors, Tolerations: way.Tolerations, Capacity: way.Capacity,
	}
	return r
}

func drawClaim(t *rapid.T, name string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	for i := range rapid.SampledFrom([]int{1, 1, 1, 1, 2, 2, 5}).Draw(t, "requests") {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, drawRequest(t, fmt.Sprintf("request-%d", i)))
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "constraints") {
		attribute := rapid.SampledFrom(drawnBinds).Draw(t, "attribute")
		c := resourceapi.DeviceConstraint{MatchAttribute: &attribute}
		if rapid.Bool().Draw(t, "distinct") {
			c = resourceapi.DeviceConstraint{DistinctAttribute: &attribute}
		}
		c.Requests = rapid.SampledFrom([][]string{nil, {"request-0"}, {"request-0", "request-1"}, {"request-0/way-0", "request-1"}}).Draw(t, "bound")
		claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints, c)
	}
	return claim
}

// drawSite returns a node with worn devices, on which claims hold what the allocator gave them.
func drawSite(t *rapid.T, tb testing.TB, c classes) *site {
	machine := rapid.SampledFrom([]string{"h100x8", "h100x2", "a30x4l40sx4", "rtxpro6000x4", "t4x1"}).Draw(t, "machine")
	slices := published(tb, machine, "node-a")
	if consumable := rapid.SampledFrom([]wire.Consumable{wire.ConsumeWhole, wire.ConsumeWhole, wire.ConsumeMemory, wire.ConsumeShares}).Draw(t, "consumable"); consumable != wire.ConsumeWhole {
		slices = publishedAs(tb, machine, "node-a", wire.Options{Driver: driver, Consumable: consumable, Offer: gpu.Offer{
			Shapes: []gpu.Shape{gpu.MIG, gpu.TimeShare}, Shares: rapid.SampledFrom([]int{0, 1, 4}).Draw(t, "shares"),
		}})
	}
	for range rapid.IntRange(0, 8).Draw(t, "worn") {
		one := slices[rapid.IntRange(0, len(slices)-1).Draw(t, "slice")]
		if len(one.Spec.Devices) == 0 {
			continue
		}
		effect := rapid.SampledFrom([]resourceapi.DeviceTaintEffect{"NoSchedule", "NoExecute", "None"}).Draw(t, "effect")
		i := rapid.IntRange(0, len(one.Spec.Devices)-1).Draw(t, "device")
		one.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "worn", Effect: effect}}
	}
	s := newSite("node-a", slices)
	for range rapid.IntRange(0, 10).Draw(t, "held") {
		claim := drawClaim(t, "held")
		claim.Spec.Devices.Constraints = nil
		ctx, cancel := context.WithTimeout(tb.Context(), allocatorTimeout)
		results, err := s.allocate(ctx, c, s.slices, claim)
		cancel()
		if err == nil && len(results) > 0 {
			s.hold(claim, results[0])
		}
	}
	return s
}

// TestChoosesWhatTheAllocatorAccepts compares fit over a demand with the allocator that it stands for:
// both find something or neither does, and what fit chose satisfies the allocator. Claims on which one of them
// exceeds its limit are compared as far as there are results.
func TestChoosesWhatTheAllocatorAccepts(t *testing.T) {
	t.Parallel()
	c := shapes()
	fits, refused, delegated, undecided := 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSite(rt, t, c)
		var claims []*resourceapi.ResourceClaim
		for i := range rapid.SampledFrom([]int{1, 1, 2}).Draw(rt, "claims") {
			claims = append(claims, drawClaim(rt, fmt.Sprintf("claim-%d", i)))
		}
		// The allocator tries all combinations of devices when it finds none.
		ctx, cancel := context.WithTimeout(t.Context(), allocatorTimeout)
		defer cancel()
		results, allocatorErr := s.allocate(ctx, c, s.slices, claims...)
		timeout := ctx.Err() != nil
		n := s.node(rt)
		if n.DelegateReason != nil {
			rt.Fatalf("unclear: %v", n.DelegateReason)
		}
		demands, err := demandsOf(requirements.NewReader(c, s.index), claims, n)
		switch {
		case errors.Is(err, requirements.ErrDelegate):
			delegated++
			return
		case err != nil:
			rt.Fatal(err)
		case allocatorErr != nil && !timeout:
			rt.Fatalf("the allocator returns %v, the demand no error", allocatorErr)
		}
		b := fit.NewBudget(fit.NodeSteps)
		choice, ok := fit.Choose(&n.Fit, demands, b)
		switch {
		case !ok && (timeout || b.Exceeded()):
			undecided++
			return
		case ok != (len(results) > 0) && !timeout:
			rt.Fatalf("fit found something: %t (%+v); the allocator: %+v", ok, choice, results)
		}
		if !ok {
			refused++
			return
		}
		fits++
		ctx, cancel = context.WithTimeout(t.Context(), allocatorTimeout)
		defer cancel()
		again, err := s.allocate(ctx, c, only(s.slices, s.keep(n, choice)), claims...)
		if ctx.Err() == nil && (err != nil || len(again) == 0) {
			rt.Fatalf("the allocator refuses what fit chose, %+v: %v", choice, err)
		}
	})
	t.Logf("%d fit, %d were refused, %d delegated, %d undecided", fits, refused, delegated, undecided)
	if fits == 0 || refused == 0 || delegated > fits || undecided > fits {
		t.Errorf("%d fit, %d were refused, %d delegated, %d undecided: the draw shows nothing", fits, refused, delegated, undecided)
	}
}

func demandsOf(r *requirements.Reader, claims []*resourceapi.ResourceClaim, n *index.Node) (*fit.Requirements, error) {
	d, err := r.Read(claims, nil)
	if err != nil {
		return nil, err
	}
	return d.OnNode(n, nil)
}

// keep names the devices that are chosen or held.
func (s *site) keep(n *index.Node, choice fit.Choice) sets.Set[string] {
	keep := sets.New[string]()
	for _, pick := range choice.Picks {
		for _, i := range pick.Devices {
			keep.Insert(n.Devices[i].Name)
		}
	}
	for _, claim := range s.claims {
		for _, r := range claim.Status.Allocation.Devices.Results {
			keep.Insert(r.Device)
		}
	}
	return keep
}
