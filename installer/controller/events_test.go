package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tessera-gpu/tessera/installer/render"
)

// The nodes of a claim are found by whatever the driver of their pools is called.
func TestNodesOfClaims(t *testing.T) {
	claim := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}}}
	claim.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{
		{Driver: "gpu.tessera.dev", Pool: "b-gpu.tessera.dev"}, {Driver: "own.example.com", Pool: "a-own.example.com"},
		{Driver: "gpu.tessera.dev", Pool: "b-gpu.tessera.dev"}, {Driver: "gpu.tessera.dev", Pool: "c-gpu.tessera.dev", AdminAccess: new(true)},
		{Driver: "net.example.com", Pool: "rack-7"},
	}
	if diff := cmp.Diff([]string{"a", "b"}, ClaimNodes(claim)); diff != "" {
		t.Error(diff)
	}
	if got := ClaimNodes(&resourceapi.ResourceClaim{}); got != nil {
		t.Errorf("a claim without devices is on %v", got)
	}
}

// A node that the discovery has come to is news, for it may be the last one that the policy waits for. Other operands are seen in the phases of nodes.
func TestAvailabilityOfTheDiscovery(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set    string
		status appsv1.DaemonSetStatus
		want   bool
	}{
		"the same":                      {set: render.OperandDiscovery},
		"it is available on a node":     {set: render.OperandDiscovery, status: appsv1.DaemonSetStatus{NumberAvailable: 1}, want: true},
		"a node joins":                  {set: render.OperandDiscovery, status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1}, want: true},
		"a driver is available":         {set: "tessera-driver", status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, NumberAvailable: 1}},
		"an edit of a driver was taken": {set: "tessera-driver", status: appsv1.DaemonSetStatus{ObservedGeneration: 1}, want: true},
	}
	for name, test := range tests {
		old := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: test.set}}
		now := old.DeepCopy()
		now.Status = test.status
		if got := workloadChanged().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
