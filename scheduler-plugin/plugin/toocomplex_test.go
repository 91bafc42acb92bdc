package plugin_test

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// completeMachine returns a node whose devices have all attributes, so that selectors distinguish placements.
func completeMachine(t *testing.T) []runtime.Object {
	t.Helper()
	n := gputest.Node(t, "h100x2")
	n.Name = "node-0"
	objects := append(classes(), newNode(n.Name))
	for _, s := range publishedWith(t, n, true) {
		objects = append(objects, s)
	}
	return objects
}

// complexClaim returns a claim of so many requests with 8 alternatives for one MIG device of one memory slice. No two
// alternatives accept the same devices.
func complexClaim(name string, requests int) *resourceapi.ResourceClaim {
	claim := claimFor(name, "1g.10gb", 1)
	claim.Spec.Devices.Requests = nil
	for r := range requests {
		request := resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", r)}
		for i := range resourceapi.FirstAvailableDeviceRequestMaxSize {
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
				Name: fmt.Sprintf("a%d", i), DeviceClassName: "1g.10gb", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
					`device.attributes[%q].index != %d || device.attributes[%q].migStart != %d`, driver, (r+i)/7%2, driver, (r+i)%7)}}},
			})
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, request)
	}
	return claim
}

// impossible adds a request to the claim that no node serves.
func impossible(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
		Name: "impossible", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 3},
	})
	return claim
}

// oneMore makes the last alternative of the first request require two devices.
func oneMore(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	ways := claim.Spec.Devices.Requests[0].FirstAvailable
	ways[len(ways)-1].Count = 2
	return claim
}

// TestComplexClaimsDoNotStopTheScheduler creates pods whose claims have up to 8^32 combinations of alternatives, and then a
// pod without claims, on a node with two GPUs.
func TestComplexClaimsDoNotStopTheScheduler(t *testing.T) {
	tests := map[string]struct {
		claim *resourceapi.ResourceClaim
		// want is a part of the message of the pod with the claim.
		want string
	}{
		"one request cannot be served":                                         {impossible(complexClaim("complex", 7)), "cannot allocate all claims"},
		"the in-tree allocator decides, since a claim may not have 33 devices": {oneMore(complexClaim("complex", resourceapi.DeviceRequestsMaxSize)), "RequestTooComplex: "},
		"no combination of all is possible":                                    {complexClaim("complex", resourceapi.DeviceRequestsMaxSize), "RequestTooComplex: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "", completeMachine(t)...)
			c.create(test.claim)
			c.create(newPod("complex", "complex"))
			if got := c.pending("complex"); !strings.Contains(got, test.want) {
				t.Errorf("the message is %q, want %q in it", got, test.want)
			}
			c.create(newPod("innocent"))
			c.bound("innocent")
		})
	}
}

// TestComplexClaimThatFits binds a pod whose claim has 8^7 combinations of alternatives, one of which fits.
func TestComplexClaimThatFits(t *testing.T) {
	c := newCluster(t, "", completeMachine(t)...)
	c.create(complexClaim("complex", 7))
	c.create(newPod("complex", "complex"))
	c.bound("complex")
	if got := len(devices(c.claim("complex"))); got != 7 {
		t.Errorf("the claim holds %d devices, want 7", got)
	}
}
