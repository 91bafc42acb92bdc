package gpu_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// linked returns a node whose given pairs of GPUs are connected by one NVLink. If half is set, only the first GPU of a pair
// reports it.
func linked(gpus int, half bool, pairs ...[2]int) gpu.Node {
	n := gpu.Node{GPUs: make([]gpu.GPU, gpus)}
	for i := range n.GPUs {
		n.GPUs[i].Links = make([]gpu.Link, gpus)
		for j := range n.GPUs {
			n.GPUs[i].Links[j] = gpu.LinkSystem
		}
		n.GPUs[i].Links[i] = gpu.LinkSelf
	}
	for _, p := range pairs {
		n.GPUs[p[0]].Links[p[1]] = gpu.NVLinks(1)
		if !half {
			n.GPUs[p[1]].Links[p[0]] = gpu.NVLinks(1)
		}
	}
	return n
}

func TestIslands(t *testing.T) {
	t.Parallel()
	lost := linked(3, false, [2]int{0, 1})
	lost.GPUs[1].Links = nil
	long := linked(2, false)
	long.GPUs[0].Links = append(long.GPUs[0].Links, gpu.NVLinks(4))
	tests := map[string]struct {
		node gpu.Node
		want []int
	}{
		"no GPU":                       {gpu.Node{}, []int{}},
		"one GPU":                      {linked(1, false), []int{-1}},
		"nothing known":                {gpu.Node{GPUs: make([]gpu.GPU, 2)}, []int{-1, -1}},
		"a pair":                       {linked(3, false, [2]int{1, 2}), []int{-1, 1, 1}},
		"a chain":                      {linked(5, false, [2]int{4, 1}, [2]int{1, 3}, [2]int{3, 0}), []int{0, 0, -1, 0, 0}},
		"two islands":                  {linked(5, false, [2]int{0, 3}, [2]int{1, 4}), []int{0, 1, -1, 0, 1}},
		"a ring":                       {linked(4, false, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}, [2]int{3, 0}), []int{0, 0, 0, 0}},
		"a link that one end reports":  {linked(3, true, [2]int{2, 0}), []int{0, -1, 0}},
		"a GPU that is not read":       {lost, []int{0, 0, -1}},
		"a link to a GPU not there":    {long, []int{-1, -1}},
		"two links, reported by halfs": {linked(3, true, [2]int{2, 1}, [2]int{1, 0}), []int{0, 0, 0}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, test.node.Islands()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestIslandsProperties compares Islands with the transitive closure of the links.
func TestIslandsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		gpus := rapid.IntRange(1, 16).Draw(t, "GPUs")
		n := linked(gpus, rapid.Bool().Draw(t, "half"))
		reach := make([][]bool, gpus)
		for i := range reach {
			reach[i] = make([]bool, gpus)
		}
		for range rapid.IntRange(0, 20).Draw(t, "links") {
			a, b := rapid.IntRange(0, gpus-1).Draw(t, "a"), rapid.IntRange(0, gpus-1).Draw(t, "b")
			if a == b {
				continue
			}
			n.GPUs[a].Links[b] = gpu.NVLinks(rapid.IntRange(1, 18).Draw(t, "n"))
			reach[a][b], reach[b][a] = true, true
		}
		for k := range gpus {
			for i := range gpus {
				for j := range gpus {
					reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
				}
			}
		}
		for i, got := range n.Islands() {
			want := -1
			for j := gpus - 1; j >= 0; j-- {
				if reach[i][j] {
					want = j
				}
			}
			if got != want {
				t.Fatalf("GPU %d is on island %d, want %d", i, got, want)
			}
		}
	})
}

func TestNVLinks(t *testing.T) {
	t.Parallel()
	for n := 1; n <= gpu.MaxNVLinks; n++ {
		if got := gpu.NVLinks(n).NVLinks(); got != n {
			t.Errorf("%d NVLinks are %d", n, got)
		}
	}
	if gpu.NVLinks(40) != gpu.NVLinks(gpu.MaxNVLinks) {
		t.Error("more NVLinks than the model distinguishes are not the most")
	}
	for _, l := range []gpu.Link{gpu.LinkUnknown, gpu.LinkSystem, gpu.LinkNode, gpu.LinkHostBridge, gpu.LinkMultiSwitch, gpu.LinkSwitch, gpu.LinkSelf} {
		if l.NVLinks() != 0 || l >= gpu.NVLinks(1) {
			t.Errorf("relation %d over PCIe counts as NVLinks", l)
		}
	}
}

// TestResetGroup checks which GPUs are reset together: one GPU alone from Ampere on, a whole link island before.
func TestResetGroup(t *testing.T) {
	t.Parallel()
	for machine, want := range map[string][][]int{
		"h100x8": {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}},
		"dgx1":   {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}},
		"t4x1":   {{0}},
	} {
		n := gputest.Node(t, machine)
		for i, group := range want {
			var names []string
			for _, k := range group {
				names = append(names, n.GPUs[k].Name())
			}
			if diff := cmp.Diff(names, n.ResetGroup(n.GPUs[i].Name())); diff != "" {
				t.Errorf("%s, GPU %d (-want +got):\n%s", machine, i, diff)
			}
		}
	}
	pairs := gputest.Node(t, "dgx1") // pairs of GPUs as islands; one link is reported by its far end only
	for i := range pairs.GPUs {
		for k := range pairs.GPUs {
			if i/2 != k/2 || i < k && i == 0 {
				pairs.GPUs[i].Links[k] = gpu.LinkSystem
			}
		}
	}
	if got := pairs.ResetGroup(pairs.GPUs[1].Name()); len(got) != 2 || got[0] != pairs.GPUs[0].Name() {
		t.Errorf("GPU 1 of a pair is reset with %v", got)
	}
	if got := pairs.ResetGroup("gpu-0"); got != nil {
		t.Errorf("a GPU that is not there is reset with %v", got)
	}
}
