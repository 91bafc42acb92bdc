package informers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
)

// The nodes of a claim are found by whatever the driver of their pools is called, those whose devices it only monitors too.
func TestNodesOfClaims(t *testing.T) {
	claim := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}}}
	claim.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{
		{Driver: "gpu.tessera.dev", Pool: "b-gpu.tessera.dev"}, {Driver: "own.example.com", Pool: "a-own.example.com"},
		{Driver: "gpu.tessera.dev", Pool: "b-gpu.tessera.dev"}, {Driver: "gpu.tessera.dev", Pool: "c-gpu.tessera.dev", AdminAccess: new(true)},
		{Driver: "net.example.com", Pool: "rack-7"},
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, ClaimNodes(claim)); diff != "" {
		t.Error(diff)
	}
	if got := ClaimNodes(&resourceapi.ResourceClaim{}); got != nil {
		t.Errorf("a claim without devices is on %v", got)
	}
}
