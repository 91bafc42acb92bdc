package gpu_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

func TestMemoryLimit(t *testing.T) {
	share := gpu.Use{Shape: gpu.TimeShare, Share: gpu.Share{MemoryBytes: 4 << 30, Shares: 1}}
	unlimited, whole := gpu.Use{Shape: gpu.TimeShare, Share: gpu.Share{Shares: 1}}, gpu.Use{Shape: gpu.Whole}
	type limit struct {
		bytes uint64
		set   bool
	}
	none, removed := limit{gpu.NoMemoryLimit, false}, limit{gpu.NoMemoryLimit, true}
	for _, test := range []struct {
		use               gpu.Use
		never, misc, dmem limit
	}{
		{share, none, limit{4 << 30, true}, limit{4 << 30, true}},
		// Only misc can have left a limit where none must be.
		{unlimited, none, removed, none},
		{whole, none, removed, none},
		{gpu.Use{Shape: gpu.MIG}, none, none, none},
		{gpu.Use{Shape: gpu.MPS, Share: share.Share}, none, limit{4 << 30, true}, limit{4 << 30, true}},
		{gpu.Use{Shape: gpu.MPS, Share: unlimited.Share}, none, removed, none},
		{gpu.Use{Shape: gpu.VFIO}, none, none, none},
		{gpu.Use{Shape: gpu.Monitor}, none, none, none},
	} {
		for limiter, want := range map[gpu.Limiter]limit{gpu.NotLimited: test.never, gpu.LimitedByMisc: test.misc, gpu.LimitedByDmem: test.dmem} {
			if bytes, set := limiter.MemoryLimit(test.use); (limit{bytes, set}) != want {
				t.Errorf("%v with limiter %q: %d bytes, set: %t, want %+v", test.use, limiter, bytes, set, want)
			}
		}
	}
}

// An offer that requires limits has no shared shape without them.
func TestEnforcedOffer(t *testing.T) {
	g := gputest.Node(t, "t4x1").GPUs[0]
	offer := gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.TimeShare, gpu.MPS, gpu.Monitor}, Shares: 4, Enforced: true}
	for limiter, want := range map[gpu.Limiter][]gpu.Shape{
		gpu.NotLimited: {gpu.Whole, gpu.Monitor}, gpu.LimitedByDmem: {gpu.TimeShare, gpu.MPS, gpu.Whole, gpu.Monitor}, gpu.LimitedByMisc: {gpu.TimeShare, gpu.Whole, gpu.Monitor},
	} {
		g.Limiter = limiter
		var shapes []gpu.Shape
		for _, u := range g.Uses(offer) {
			shapes = append(shapes, u.Shape)
		}
		if diff := cmp.Diff(want, shapes); diff != "" {
			t.Errorf("limiter %q (-want +got):\n%s", limiter, diff)
		}
	}
}
