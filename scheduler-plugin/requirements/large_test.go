package requirements_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// largeNode returns the ResourceSlices of a node with 40 GPUs, which publishes about a thousand devices.
func largeNode(t *testing.T) []*resourceapi.ResourceSlice {
	t.Helper()
	n := gputest.Node(t, "h100x8")
	n.Name = "node"
	gpus := slices.Repeat(n.GPUs, 5)
	for i := range gpus {
		gpus[i].Index, gpus[i].UUID, gpus[i].PCI = i, catalog.UUID("node", i), fmt.Sprintf("0000:%02x:00.0", i+1)
	}
	n.GPUs = gpus
	pool, err := wire.Encode(n, wire.Options{Driver: driver, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG}}})
	if err != nil {
		t.Fatal(err)
	}
	var list []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		list = append(list, slice("node", driver, pool.Name, resourceapi.ResourceSliceSpec{SharedCounters: s.SharedCounters, Devices: s.Devices}))
		list[i].Name = fmt.Sprintf("%02x", i)
		list[i].Spec.Pool.ResourceSliceCount = int64(len(pool.Slices))
	}
	return list
}

// largestClaim returns a claim with the most requests and alternatives that the API permits. No two alternatives accept the same
// devices.
func largestClaim() *resourceapi.ResourceClaim {
	claim := exact("claim", "mig")
	claim.Spec.Devices.Requests = nil
	for r := range resourceapi.DeviceRequestsMaxSize {
		request := resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", r)}
		for i := range resourceapi.FirstAvailableDeviceRequestMaxSize {
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
				Name: fmt.Sprintf("a%d", i), DeviceClassName: "mig", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Selectors: selectors(fmt.Sprintf(`!(device.attributes[%q].index in [%d, %d])`, driver, r, 32+i)),
			})
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, request)
	}
	return claim
}

// TestLargestClaimOnALargeNode evaluates the claim with the steps that one attempt may take on all nodes. Results of selectors
// are cached, so that the next attempt continues; the rest must be possible in one attempt, or no attempt ever ends.
func TestLargestClaimOnALargeNode(t *testing.T) {
	t.Parallel()
	s := newSite("node", largeNode(t))
	n := s.node(t)
	if n.DelegateReason != nil || len(n.Devices) < 1000 {
		t.Fatalf("the node has %d devices, want 1000: %v", len(n.Devices), n.DelegateReason)
	}
	const attempt, attempts = 200_000, 10
	reader := requirements.NewReader(shapes(), s.index)
	claims := []*resourceapi.ResourceClaim{largestClaim()}
	if least := reader.LeastSteps(claims); least < attempt/2 {
		t.Errorf("the claim takes at least %d steps", least)
	}
	for i := range attempts {
		b := fit.NewBudget(attempt)
		req, err := reader.Read(claims, b)
		if err == nil {
			var demands *fit.Requirements
			if demands, err = req.OnNode(n, b.Half()); err == nil {
				t.Logf("%d devices: %d attempts, the last one takes %d steps", len(n.Devices), i+1, b.Spent())
				checkCandidates(t, n, &demands.Requests[3].Alternatives[5], 3, 37)
				return
			}
		}
		if !errors.Is(err, fit.ErrTooComplex) {
			t.Fatal(err)
		}
	}
	t.Errorf("no result after %d attempts", attempts)
}

// checkCandidates checks that the candidates are the MIG devices of all GPUs but two.
func checkCandidates(t *testing.T, n *index.Node, a *fit.Alternative, excluded ...int64) {
	t.Helper()
	for i, d := range n.Devices {
		want := *d.Attributes[wire.Type].StringValue == "mig" && !slices.Contains(excluded, *d.Attributes[wire.Index].IntValue)
		if got := a.Candidates.Has(i); got != want {
			t.Fatalf("device %s is a candidate: %t, want %t", d.Name, got, want)
		}
	}
}

// TestLeastSteps compares the steps with those that reading claims takes.
func TestLeastSteps(t *testing.T) {
	t.Parallel()
	claims := []*resourceapi.ResourceClaim{largestClaim(), exact("other", "mig", `device.attributes["gpu.tessera.dev"].index == 1`)}
	reader := requirements.NewReader(classes{"mig": nil}, newSite("none", nil).index)
	for _, state := range []string{"nothing is compiled", "everything is compiled"} {
		b, least := fit.NewBudget(1_000_000), reader.LeastSteps(claims)
		if _, err := reader.Read(claims, b); err != nil {
			t.Fatal(err)
		}
		if b.Spent() != least {
			t.Errorf("%s: reading takes %d steps, want %d", state, b.Spent(), least)
		}
	}
}
