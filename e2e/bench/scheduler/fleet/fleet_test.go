package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

func made(t *testing.T, s Spec) *Fleet {
	t.Helper()
	f, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The devices that the levels allocate together must be published and free: no GPU is allocated
// twice.
func TestHeld(t *testing.T) {
	for name, shapes := range map[string][]gpu.Shape{"all shapes": nil, "whole": {gpu.Whole}} {
		t.Run(name, func(t *testing.T) {
			f := made(t, Spec{Nodes: 200, Shapes: shapes})
			used := map[Level]int{}
			for node := range f.Nodes {
				published := map[string]bool{}
				for _, slice := range f.Shared(node) {
					for _, device := range slice.Spec.Devices {
						published[device.Name] = true
					}
				}
				occupied := map[string]gpu.Occupancy{}
				for _, level := range []Level{Half, Full} {
					claims, err := f.Held(node, level)
					if err != nil {
						t.Fatal(err)
					}
					before := len(occupied)
					for _, claim := range claims {
						take(t, f, node, occupied, claim)
						for _, result := range claim.Status.Allocation.Devices.Results {
							if !published[result.Device] {
								t.Fatalf("%s is allocated and not published", result.Device)
							}
						}
					}
					used[level] += len(occupied) - before
				}
			}
			all := f.Nodes * f.GPUs()
			if used[Half] < all*45/100 || used[Half] > all*55/100 || used[Half]+used[Full] < all*92/100 || used[Half]+used[Full] == all {
				t.Errorf("of %d GPUs are used %v", all, used)
			}
		})
	}
}

func take(t *testing.T, f *Fleet, node int, occupied map[string]gpu.Occupancy, claim *resourceapi.ResourceClaim) {
	t.Helper()
	hardware := f.template
	hardware.Name = f.Name(node)
	for _, result := range claim.Status.Allocation.Devices.Results {
		device, err := wire.Decode(result, hardware, wire.Options{Driver: result.Driver, Offer: f.options.Offer})
		if err != nil {
			t.Fatal(err)
		}
		before, known := occupied[device.GPU]
		if !known {
			before = f.template.GPUs[0].Geometry.Empty()
		}
		after, err := before.Take(device.Use)
		if err != nil {
			t.Fatal(err)
		}
		occupied[device.GPU] = after
	}
}

func TestUnits(t *testing.T) {
	b := Batch{Name: "b", Pods: 1000, Mix: Mixed}
	if diff := cmp.Diff(b.Units(), b.Units()); diff != "" {
		t.Errorf("two makings of a batch differ: %s", diff)
	}
	requested := map[string]int{}
	for _, u := range b.Units() {
		requested[u.Claim.Spec.Devices.Requests[0].Exactly.DeviceClassName]++
	}
	if len(requested) != 4 || requested[Driver] < 150 || requested[Driver] > 250 {
		t.Errorf("requested classes: %v", requested)
	}
	for _, u := range (Batch{Name: "p", Pods: 2, Mix: Plain}).Units() {
		if u.Claim != nil || u.Pod.Spec.ResourceClaims != nil {
			t.Errorf("a plain pod has a claim: %v", u)
		}
	}
}
