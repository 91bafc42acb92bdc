package gpu_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

func share(shape gpu.Shape, memory uint64, shares, compute int) gpu.Use {
	return gpu.Use{Shape: shape, Share: gpu.Share{MemoryBytes: memory, Shares: shares, Compute: compute}}
}

func TestTakeShares(t *testing.T) {
	t.Parallel()
	g := gputest.Node(t, "h100x2").GPUs[0]
	half := g.Shareable() / 2
	tests := map[string]struct {
		held []gpu.Use
		take gpu.Use
		want string
	}{
		"the first":             {nil, share(gpu.TimeShare, half, 1, 0), ""},
		"the other half":        {[]gpu.Use{share(gpu.TimeShare, half, 1, 0)}, share(gpu.TimeShare, half, 1, 0), ""},
		"more than is left":     {[]gpu.Use{share(gpu.TimeShare, half+1, 1, 0)}, share(gpu.TimeShare, half, 1, 0), "bytes of memory"},
		"more than there is":    {nil, share(gpu.MPS, g.Shareable()+1, 1, 0), "bytes of memory"},
		"an overflow":           {[]gpu.Use{share(gpu.MPS, half, 1, 0)}, share(gpu.MPS, 1<<64-1, 1, 0), "bytes of memory"},
		"the last share":        {[]gpu.Use{share(gpu.MPS, 1, 3, 0)}, share(gpu.MPS, 1, 1, 0), ""},
		"a share too many":      {[]gpu.Use{share(gpu.MPS, 1, 4, 0)}, share(gpu.MPS, 1, 1, 0), "needs 1 shares, 4 of 4 are allocated"},
		"all compute":           {[]gpu.Use{share(gpu.MPS, 1, 1, 60)}, share(gpu.MPS, 1, 1, 40), ""},
		"compute with no limit": {[]gpu.Use{share(gpu.MPS, 1, 1, 0)}, share(gpu.MPS, 1, 1, 100), ""},
		"too much compute":      {[]gpu.Use{share(gpu.MPS, 1, 1, 60)}, share(gpu.MPS, 1, 1, 41), "60 of 100 % are allocated"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := g.Empty(4)
			for _, u := range test.held {
				var err error
				if o, err = o.Take(u); err != nil {
					t.Fatal(err)
				}
			}
			after, err := o.Take(test.take)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("take: %v", err)
			case test.want != "" && (!errors.Is(err, gpu.ErrOccupied) || !strings.Contains(err.Error(), test.want) || after != o):
				t.Errorf("take: %v, changed: %v, want an error with %q", err, after != o, test.want)
			}
		})
	}
}

func TestReleaseOfMoreThanIsShared(t *testing.T) {
	t.Parallel()
	o, err := gputest.Node(t, "t4x1").GPUs[0].Empty(4).Take(share(gpu.MPS, 10, 1, 10))
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []gpu.Use{share(gpu.MPS, 11, 1, 10), share(gpu.MPS, 10, 2, 10), share(gpu.MPS, 10, 1, 11)} {
		if after, err := o.Release(u); err == nil || after != o {
			t.Errorf("release of %v: %v", u.Share, err)
		}
	}
}

// TestShareProperties takes random shares and releases them in random order. The sum never exceeds the total, and the last
// release restores the empty occupancy.
func TestShareProperties(t *testing.T) {
	t.Parallel()
	g := gputest.Node(t, "t4x1").GPUs[0]
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SampledFrom([]gpu.Shape{gpu.TimeShare, gpu.MPS}).Draw(t, "shape")
		empty := g.Empty(rapid.IntRange(1, 6).Draw(t, "shares"))
		use := rapid.Custom(func(t *rapid.T) gpu.Use {
			return share(shape, rapid.Uint64Range(1, g.MemoryBytes).Draw(t, "memory"), rapid.IntRange(1, 2).Draw(t, "shares"), rapid.IntRange(0, 60).Draw(t, "compute"))
		})
		o, held := empty, []gpu.Use(nil)
		for _, u := range rapid.SliceOfN(use, 0, 12).Draw(t, "uses") {
			next, err := o.Take(u)
			if fits := o.Fits(u); fits != (err == nil) {
				t.Fatalf("%v on %v: Fits returns %v, but Take %v", u.Share, o.Shared(), fits, err)
			}
			if err == nil {
				o, held = next, append(held, u)
			}
			if s := o.Shared(); s.MemoryBytes > g.MemoryBytes || s.Compute > 100 {
				t.Fatalf("%v is shared out", s)
			}
		}
		for _, u := range rapid.Permutation(held).Draw(t, "order") {
			var err error
			if o, err = o.Release(u); err != nil {
				t.Fatal(err)
			}
		}
		if o != empty {
			t.Fatalf("after the last release: %+v", o)
		}
	})
}
