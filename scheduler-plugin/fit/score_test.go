package fit_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// TestScorePrefers lists pairs of nodes of which the first must be preferred.
func TestScorePrefers(t *testing.T) {
	t.Parallel()
	whole, slice := gpu.Use{Shape: gpu.Whole}, func(start int) gpu.Use { return mig(gpu.Placement{Profile: 19, Start: start, Size: 1}) }
	pair := func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 2, gpu.Whole, "")) }
	oneSlice := func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "1g.10gb")) }
	tests := map[string]struct {
		machine       string
		better, worse map[int][]gpu.Use
		demand        func(*fit.Node) *fit.Requirements
	}{
		"the first alternative on a fuller node": {
			"h100x8", map[int][]gpu.Use{0: {whole}, 1: {whole}, 2: {whole}}, map[int][]gpu.Use{0: {slice(0)}, 1: {slice(0)}, 2: {slice(0)}, 3: {slice(0)}, 4: {slice(0)}, 5: {slice(0)}, 6: {slice(0)}, 7: {slice(0)}},
			func(n *fit.Node) *fit.Requirements {
				return demand(alternativeFor(n, 1, gpu.Whole, ""), alternativeFor(n, 1, gpu.MIG, "1g.10gb"))
			},
		},
		"two links, though they break an idle node": {
			"dgx1", nil, map[int][]gpu.Use{2: {whole}, 3: {whole}, 4: {whole}, 5: {whole}, 6: {whole}, 7: {whole}}, pair,
		},
		"two links on the node with less to lose": {
			"dgx1", map[int][]gpu.Use{1: {whole}, 2: {whole}, 4: {whole}, 5: {whole}, 6: {whole}, 7: {whole}}, nil, pair,
		},
		"the slice that costs nothing more": {
			"h100x2", map[int][]gpu.Use{0: {slice(6)}}, nil, oneSlice,
		},
		"more instances on the GPU": {
			"h100x2",
			map[int][]gpu.Use{0: {slice(0), slice(1), slice(4), slice(5)}}, map[int][]gpu.Use{0: {mig(gpu.Placement{Profile: 14, Start: 0, Size: 2}), mig(gpu.Placement{Profile: 14, Start: 4, Size: 2})}},
			oneSlice,
		},
		"the node that is used, among those with nothing but idle GPUs to open": {
			"h100x8", map[int][]gpu.Use{0: {whole}, 1: {whole}}, nil, oneSlice,
		},
		"a share of a shared GPU": {
			"h100x2", map[int][]gpu.Use{0: {{Shape: gpu.MPS}}}, map[int][]gpu.Use{0: {whole}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MPS, "")) },
		},
		"a share of the GPU with less memory left": {
			"h100x2",
			map[int][]gpu.Use{0: {{Shape: gpu.MPS, Share: gpu.Share{MemoryBytes: 60 << 30}}}}, map[int][]gpu.Use{0: {{Shape: gpu.MPS, Share: gpu.Share{MemoryBytes: 10 << 30}}}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MPS, "")) },
		},
		"several slices on the broken GPU": {
			"h100x2", map[int][]gpu.Use{0: {slice(6)}}, nil,
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 2, gpu.MIG, "1g.10gb")) },
		},
	}
	for name, test := range tests {
		scores := map[bool]int64{}
		for better, held := range map[bool]map[int][]gpu.Use{true: test.better, false: test.worse} {
			n := nodeOf(t, test.machine)
			for position, uses := range held {
				hold(t, n, position, uses...)
			}
			choice, ok := fit.Choose(n, test.demand(n), nil)
			if !ok {
				t.Fatalf("%s: not served", name)
			}
			scores[better] = choice.Score
		}
		if scores[true] <= scores[false] {
			t.Errorf("%s: scores %x and %x", name, scores[true], scores[false])
		}
	}
}

// TestManyGPUs serves a node of more GPUs than have tables.
func TestManyGPUs(t *testing.T) {
	t.Parallel()
	hardware := gputest.Node(t, "t4x1")
	one := hardware.GPUs[0]
	hardware.GPUs = nil
	for i := range 20 {
		g := one
		g.PCI, g.Index, g.Links = one.PCI[:len(one.PCI)-4]+string(rune('a'+i))+"0.0", i, make([]gpu.Link, 20)
		for j := range g.Links {
			g.Links[j] = gpu.LinkSystem
		}
		g.Links[i], g.Links[i^1] = gpu.LinkSelf, gpu.NVLinks(4)
		hardware.GPUs = append(hardware.GPUs, g)
	}
	n := offered(t, hardware, gpu.Offer{Shapes: []gpu.Shape{gpu.Whole}})
	hold(t, n, 0, gpu.Use{Shape: gpu.Whole})
	hold(t, n, 3, gpu.Use{Shape: gpu.Whole})
	for count, want := range map[int][]string{
		2: {"4 gpu", "5 gpu"}, 18: {"1 gpu", "2 gpu", "4 gpu", "5 gpu", "6 gpu", "7 gpu", "8 gpu", "9 gpu", "10 gpu",
			"11 gpu", "12 gpu", "13 gpu", "14 gpu", "15 gpu", "16 gpu", "17 gpu", "18 gpu", "19 gpu"}, 19: nil,
	} {
		choice, ok := fit.Choose(n, demand(alternativeFor(n, count, gpu.Whole, "")), nil)
		if ok != (want != nil) {
			t.Fatalf("%d: served %v", count, ok)
		}
		if diff := cmp.Diff(want, names(n, choice)); diff != "" {
			t.Errorf("%d: %s", count, diff)
		}
	}
	if q := n.Wiring.Quality([]int{4, 5}); q != 1 {
		t.Errorf("quality of a pair: %v", q)
	}
	if q := n.Wiring.Quality([]int{4, 6}); q > .2 {
		t.Errorf("quality of two without a link: %v", q)
	}
	n.Wiring = nil
	if choice, ok := fit.Choose(n, demand(alternativeFor(n, 2, gpu.Whole, "")), nil); !ok || len(choice.Picks[0].Devices) != 2 {
		t.Errorf("without wiring: %v %v", choice, ok)
	}
}

// TestConcurrentUse fills tables from many goroutines; it is meaningful under the race detector.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	n := nodeOf(t, "h100x8")
	demands := []*fit.Requirements{
		demand(alternativeFor(n, 1, gpu.MIG, "1g.10gb")), demand(alternativeFor(n, 3, gpu.Whole, "")), demand(alternativeFor(n, 4, gpu.Whole, "")), demand(alternativeFor(n, 2, gpu.MIG, "2g.20gb")),
	}
	var want []fit.Choice
	for _, d := range demands {
		choice, _ := fit.Choose(nodeOf(t, "h100x8"), d, nil)
		want = append(want, choice)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i, d := range demands {
				if got, _ := fit.Choose(n, d, nil); !cmp.Equal(got, want[i]) {
					t.Errorf("%v, want %v", got, want[i])
				}
			}
		})
	}
	group.Wait()
}
