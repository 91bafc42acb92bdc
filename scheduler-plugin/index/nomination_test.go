package index_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// TestPromise checks what is free for other pods and for the pod itself of a GPU of which half is nominated.
func TestPromise(t *testing.T) {
	t.Parallel()
	n := machine(t, "h100x2", "n1")
	const all, upper = gpu.Mask(0xff), gpu.Mask(0xf0)
	half := []resourceapi.DeviceRequestAllocationResult{result("n1", mig(n, 0, 9, 0))}
	promise := func(x *index.Index) { x.Nominate("p", "n1", half) }
	type seen struct {
		Others, Own gpu.Mask
		Held        int
	}
	for name, test := range map[string]struct {
		do   []func(x *index.Index)
		want seen
	}{
		"promised": {[]func(*index.Index){promise}, seen{upper, all, 1}},
		"twice":    {[]func(*index.Index){promise, promise}, seen{upper, all, 1}},
		"replaced": {[]func(*index.Index){promise, func(x *index.Index) {
			x.Nominate("p", "n1", []resourceapi.DeviceRequestAllocationResult{result("n1", mig(n, 0, 9, 4))})
		}}, seen{0x0f, all, 1}},
		"elsewhere": {[]func(*index.Index){promise, func(x *index.Index) {
			x.Nominate("p", "n2", half)
		}}, seen{all, all, 0}},
		"redeemed":             {[]func(*index.Index){promise, func(x *index.Index) { x.EndNomination("p") }}, seen{all, all, 0}},
		"redeemed, never made": {[]func(*index.Index){func(x *index.Index) { x.EndNomination("p") }}, seen{all, all, 0}},
		"of an unknown device": {[]func(*index.Index){func(x *index.Index) {
			x.Nominate("p", "n1", []resourceapi.DeviceRequestAllocationResult{result("n1", "x")})
		}}, seen{all, all, 0}},
		"with another holder": {[]func(*index.Index){promise, func(x *index.Index) { x.SetClaim(claimOf("a", 1, result("n1", mig(n, 0, 19, 6)))) }}, seen{0xb0, 0xbf, 2}},
		"still held by another": {[]func(*index.Index){
			promise, func(x *index.Index) { x.SetClaim(claimOf("a", 1, result("n1", mig(n, 0, 19, 1)))) },
		}, seen{upper, 0xfd, 1}},
		"given away when it is released": {[]func(*index.Index){
			promise, func(x *index.Index) {
				x.SetClaim(claimOf("a", 1, result("n1", mig(n, 0, 19, 1))))
				x.DeleteClaim(claimOf("a", 1))
			},
		}, seen{upper, all, 1}},
		"of a GPU that is in use as a whole": {[]func(*index.Index){
			promise, func(x *index.Index) { x.SetClaim(claimOf("a", 1, result("n1", whole(n, 0)))) },
		}, seen{0, 0, 1}},
		"before the node is known": {[]func(*index.Index){
			func(x *index.Index) {
				for _, s := range publish(t, n, 1, 1) {
					x.DeleteSlice(s)
				}
			}, promise, func(x *index.Index) { set(x, publish(t, n, 1, 1)) },
		}, seen{upper, all, 1}},
		"kept for the pod that got it": {[]func(*index.Index){
			promise, func(x *index.Index) { x.AddPendingAllocation(claimOf("a", 1, half...)) },
		}, seen{upper, upper, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newIndex()
			set(x, publish(t, n, 1, 1))
			for _, do := range test.do {
				do(x)
			}
			others := known(t, x, "n1")
			own := others.ForPod("p")
			got := seen{others.Fit.GPUs[0].Occupancy.Free(), own.Fit.GPUs[0].Occupancy.Free(), len(others.Held)}
			if diff := cmp.Diff(test.want, got); diff != "" || others.DelegateReason != nil {
				t.Errorf("unclear %v (-want +got):\n%s", others.DelegateReason, diff)
			}
			if others.ForPod("stranger") != others {
				t.Error("a stranger sees another node")
			}
		})
	}
}
