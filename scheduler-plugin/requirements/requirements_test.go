package requirements_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// change is made to the one request of a claim for a whole GPU.
type change func(*resourceapi.ResourceClaim, *resourceapi.ExactDeviceRequest)

func changed(name string, changes ...change) *resourceapi.ResourceClaim {
	claim := exact(name, "gpu")
	for _, c := range changes {
		c(claim, claim.Spec.Devices.Requests[0].Exactly)
	}
	return claim
}

func selecting(expression string) change {
	return func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
		r.Selectors = append(r.Selectors, selectors(expression)...)
	}
}

func ofClass(name string) change {
	return func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) { r.DeviceClassName = name }
}

func taking(name, quantity string) change {
	return func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
		r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			resourceapi.QualifiedName(name): resource.MustParse(quantity),
		}}
	}
}

func bound(c resourceapi.DeviceConstraint) change {
	return func(claim *resourceapi.ResourceClaim, _ *resourceapi.ExactDeviceRequest) {
		claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints, c)
	}
}

func TestDelegates(t *testing.T) {
	t.Parallel()
	device := func(f func(*resourceapi.Device)) func(*site) {
		return func(s *site) {
			for _, one := range s.slices {
				for i := range one.Spec.Devices {
					f(&one.Spec.Devices[i])
				}
			}
		}
	}
	tests := map[string]struct {
		change change
		// is done to what the node publishes.
		is func(*site)
		// want is a part of the message; empty when fit decides.
		want string
	}{
		"nothing special": {},
		"mode All": {change: func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
			r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeAll, 0
		}, want: "allocation mode All"},
		"admin access": {change: func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
			r.AdminAccess = new(true)
		}, want: "admin access"},
		"no admin access": {change: func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
			r.AdminAccess = new(false)
		}},
		"too many": {change: func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) { r.Count = 33 }, want: "count 33"},
		"too many together": {change: func(claim *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
			r.Count = 20
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: "more", Exactly: r})
		}, want: "may need 40 devices"},
		"derived attributes": {change: func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
			r.DerivedAttributes = []resourceapi.DeviceDerivedAttribute{{Name: "a/b", Expression: "1"}}
		}, want: "derived attributes"},
		"unknown class": {change: ofClass("nothing"), want: "device class nothing"},
		"unknown request": {change: func(claim *resourceapi.ResourceClaim, _ *resourceapi.ExactDeviceRequest) {
			claim.Spec.Devices.Requests[0].Exactly = nil
		}, want: "unknown kind of request"},
		"unknown selector": {change: func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
			r.Selectors = make([]resourceapi.DeviceSelector, 1)
		}, want: "not CEL"},
		"unknown constraint": {change: bound(resourceapi.DeviceConstraint{}), want: "unknown constraint"},
		"bad selector":       {change: selecting("device."), want: "compile selector"},
		"failing selector":   {change: selecting(`device.attributes["gpu.tessera.dev"].nothing == 1`), want: "no such key"},
		"foreign devices match": {
			change: ofClass("any"),
			is: func(s *site) {
				s.slices = append(s.slices, slice(s.name, "nic.example.com", "nics", resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{Name: "nic"}}}))
			}, want: "a device of driver nic.example.com matches as well",
		},
		"foreign devices do not match": {is: func(s *site) {
			s.slices = append(s.slices, slice(s.name, "nic.example.com", "nics", resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{Name: "nic"}}}))
		}},
		"roaming devices match": {change: ofClass("any"), is: func(s *site) {
			roaming := slice(s.name, "fabric.example.com", "fabric", resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{Name: "switch"}}})
			roaming.Spec.NodeName, roaming.Spec.AllNodes = nil, new(true)
			s.slices = append(s.slices, roaming)
		}, want: "a device of driver fabric.example.com matches as well"},
		"binding conditions": {is: device(func(d *resourceapi.Device) { d.BindingConditions = []string{"ready"} }), want: "binding conditions"},
		"binds to node":      {is: device(func(d *resourceapi.Device) { d.BindsToNode = new(true) }), want: "binds to the node"},
		"takes node's resources": {is: device(func(d *resourceapi.Device) {
			d.NodeAllocatableResources = map[corev1.ResourceName]resourceapi.NodeAllocatableResource{"cpu": {}}
		}), want: "resources of the node"},
		"compatibility groups": {is: device(func(d *resourceapi.Device) {
			for i := range d.ConsumesCounters {
				d.ConsumesCounters[i].CompatibilityGroups = []string{"a"}
			}
		}), want: "compatibility groups"},
		"node operations": {is: func(s *site) {
			s.slices[len(s.slices)-1].Spec.SkipNodeOperations = []resourceapi.SkipNodeOperation{"Prepare"}
		}, want: "skips node operations"},
		"incomplete pool": {is: func(s *site) { s.slices = s.slices[1:] }, want: "ResourceSlices of generation"},
		"list attribute": {
			change: bound(resourceapi.DeviceConstraint{MatchAttribute: new(resourceapi.FullyQualifiedName("gpu.tessera.dev/peers"))}),
			is: device(func(d *resourceapi.Device) {
				d.Attributes["peers"] = resourceapi.DeviceAttribute{IntValues: []int64{1, 2}}
			}), want: "not a single value",
		},
		"fractions": {change: taking("memory", "1500m"), want: "whole number"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := &site{name: "node", slices: published(t, "t4x1", "node")}
			if test.is != nil {
				test.is(raw)
			}
			s := newSite("node", raw.slices)
			var changes []change
			if test.change != nil {
				changes = append(changes, test.change)
			}
			n := s.node(t)
			_, err := demandsOf(requirements.NewReader(shapes(), s.index), []*resourceapi.ResourceClaim{changed("claim", changes...)}, n)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("delegated: %v", err)
			case test.want != "" && (!errors.Is(err, requirements.ErrDelegate) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want a delegation with %q", err, test.want)
			}
		})
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	s := newSite("node", nil)
	key := func(c classes, claims ...*resourceapi.ResourceClaim) string {
		t.Helper()
		d, err := requirements.NewReader(c, s.index).Read(claims, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d.Key
	}
	plain := key(shapes(), changed("claim"))
	if got := key(shapes(), changed("another")); got != plain {
		t.Error("the name of a claim counts")
	}
	narrow := shapes()
	narrow["gpu"] = append(narrow["gpu"], `device.attributes["gpu.tessera.dev"].index == 0`)
	numa := resourceapi.FullyQualifiedName("resource.kubernetes.io/numaNode")
	keys := []string{plain,
		key(narrow, changed("claim")),
		key(shapes(), changed("claim", ofClass("timeshare"))),
		key(shapes(), changed("claim", selecting("true"))),
		key(shapes(), changed("claim", selecting("true"), selecting("true"))),
		key(shapes(), changed("claim", taking("memory", "1Gi"))),
		key(shapes(), changed("claim", taking("memory", "2Gi"))),
		key(shapes(), changed("claim", bound(resourceapi.DeviceConstraint{MatchAttribute: &numa}))),
		key(shapes(), changed("claim", bound(resourceapi.DeviceConstraint{DistinctAttribute: &numa}))),
		key(shapes(), changed("claim", func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) { r.Count = 2 })),
		key(shapes(), changed("claim", func(_ *resourceapi.ResourceClaim, r *resourceapi.ExactDeviceRequest) {
			r.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
		})),
		key(shapes(), changed("claim"), changed("claim")),
	}
	slices.Sort(keys)
	if got := len(slices.Compact(slices.Clone(keys))); got != len(keys) {
		t.Errorf("%d of %d different demands have keys of their own", got, len(keys))
	}
}

func TestNamesAreThoseOfThePod(t *testing.T) {
	t.Parallel()
	s := newSite("node", published(t, "t4x1", "node"))
	reader := requirements.NewReader(shapes(), s.index)
	for _, name := range []string{"first", "second", "first"} {
		demands, err := demandsOf(reader, []*resourceapi.ResourceClaim{changed(name)}, s.node(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := demands.Requests[0].Name; got != name+"/request" {
			t.Errorf("claim %s: the request is called %s", name, got)
		}
	}
}

// TestChangedNodeIsReevaluated changes what a node publishes: what was learned of it before does not count any more.
func TestChangedNodeIsReevaluated(t *testing.T) {
	t.Parallel()
	list := published(t, "t4x1", "node")
	s := newSite("node", list)
	d, err := requirements.NewReader(shapes(), s.index).Read([]*resourceapi.ResourceClaim{changed("claim")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := candidates(t, s, d); got != 1 {
		t.Fatalf("%d candidates, want 1", got)
	}
	for _, one := range list {
		worn := one.DeepCopy()
		worn.ResourceVersion = "2"
		for i := range worn.Spec.Devices {
			worn.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "worn", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		s.index.SetSlice(worn)
	}
	if got := candidates(t, s, d); got != 0 {
		t.Errorf("%d candidates on a node whose devices are tainted now", got)
	}
}

func candidates(t *testing.T, s *site, req *requirements.PodRequirements) int {
	t.Helper()
	n := s.node(t)
	demands, err := req.OnNode(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for i := range n.Devices {
		if demands.Requests[0].Alternatives[0].Candidates.Has(i) {
			count++
		}
	}
	return count
}

func TestShares(t *testing.T) {
	t.Parallel()
	s := newSite("node", published(t, "t4x1", "node"))
	const part = 1 << 30 // A tenth of 15 GiB in steps of 1 GiB.
	tests := map[string]struct {
		change change
		want   gpu.Share
	}{
		"defaults":          {nil, gpu.Share{MemoryBytes: part, Shares: 1}},
		"rounded up":        {taking("memory", "2500Mi"), gpu.Share{MemoryBytes: 3 << 30, Shares: 1}},
		"at least a step":   {taking("memory", "1"), gpu.Share{MemoryBytes: 1 << 30, Shares: 1}},
		"more shares":       {taking("shares", "4"), gpu.Share{MemoryBytes: part, Shares: 4}},
		"a part of compute": {taking("compute", "30"), gpu.Share{MemoryBytes: part, Shares: 1, Compute: 30}},
		"too much":          {taking("memory", "500Gi"), gpu.Share{}},
		"nothing known":     {taking("gpu.tessera.dev/memory", "1Gi"), gpu.Share{}},
	}
	for name, test := range tests {
		changes := []change{ofClass("mps")}
		if test.change != nil {
			changes = append(changes, test.change)
		}
		n := s.node(t)
		demands, err := demandsOf(requirements.NewReader(shapes(), s.index), []*resourceapi.ResourceClaim{changed("claim", changes...)}, n)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := sharesOf(demands.Requests[0].Alternatives[0]); got != test.want {
			t.Errorf("%s: takes %+v, want %+v", name, got, test.want)
		}
	}
}

// sharesOf returns what is taken of the candidate, nothing when there is none.
func sharesOf(a fit.Alternative) gpu.Share {
	for i, share := range a.Shares {
		if a.Candidates.Has(i) {
			return share
		}
	}
	return gpu.Share{}
}
