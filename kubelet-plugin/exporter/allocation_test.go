package exporter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

func TestCommon(t *testing.T) {
	tests := map[string]struct {
		holders []consumer
		want    consumer
	}{
		"unused":  {nil, consumer{}},
		"one":     {[]consumer{{"ns", "pod", "main", "claim"}}, consumer{"ns", "pod", "main", "claim"}},
		"no pod":  {[]consumer{{"ns", "", "", "claim"}}, consumer{"ns", "", "", "claim"}},
		"sidecar": {[]consumer{{"ns", "pod", "main", "claim"}, {"ns", "pod", "side", "claim"}}, consumer{"ns", "pod", "", "claim"}},
		"a claim that pods share, with containers of one name": {
			[]consumer{{"ns", "a", "main", "claim"}, {"ns", "b", "main", "claim"}}, consumer{"ns", "", "", "claim"},
		},
		"claims of one namespace": {
			[]consumer{{"ns", "a", "main", "one"}, {"ns", "b", "main", "two"}}, consumer{"ns", "", "", ""},
		},
		"equal names in different namespaces": {
			[]consumer{{"ns", "pod", "main", "claim"}, {"other", "pod", "main", "claim"}}, consumer{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := commonLabels(test.holders); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestByPod(t *testing.T) {
	got := mergeByPod([]consumer{
		{"b", "x", "main", "c1"}, {"a", "y", "main", "c2"}, {"a", "y", "main", "c3"}, {"a", "x", "main", "c4"},
		{"a", "x", "side", "c4"}, {"a", "", "", "c5"},
	})
	want := []consumer{{"a", "x", "", "c4"}, {"a", "y", "main", ""}, {"b", "x", "main", "c1"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(consumer{})); diff != "" {
		t.Errorf("one for every pod (-want +got):\n%s", diff)
	}
}

// A container uses a device only if kubelet lists it with the claim, the pool, the device and the share.
func TestConsumersOf(t *testing.T) {
	claim := prepare.Ref{UID: "1", Namespace: "ns", Name: "claim"}
	device := prepare.Result{Request: "r", Pool: "pool", Device: "gpu-0", ShareID: "s"}
	right := Container{Namespace: "ns", Pod: "pod", Name: "main", Claim: "claim", Pool: "pool", Device: "gpu-0", ShareID: "s"}
	alone := []consumer{{namespace: "ns", claim: "claim"}}
	tests := map[string]struct {
		change func(*Container)
		want   []consumer
	}{
		"the same":          {func(*Container) {}, []consumer{{"ns", "pod", "main", "claim"}}},
		"another namespace": {func(c *Container) { c.Namespace = "other" }, alone},
		"another claim":     {func(c *Container) { c.Claim = "other" }, alone},
		"another pool":      {func(c *Container) { c.Pool = "other" }, alone},
		"another device":    {func(c *Container) { c.Device = "other" }, alone},
		"another share":     {func(c *Container) { c.ShareID = "other" }, alone},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := right
			test.change(&c)
			if diff := cmp.Diff(test.want, consumersOf(claim, device, []Container{c}), cmp.AllowUnexported(consumer{})); diff != "" {
				t.Errorf("users (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFreeProfiles(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	slice := func(profile, start int) allocation {
		for _, p := range node.GPUs[0].Geometry.Placements(profile) {
			if p.Start == start {
				instance := gpu.Instance{UUID: "MIG-1", Placement: p}
				return allocation{use: gpu.Device{GPU: node.GPUs[0].Name(), Use: gpu.Use{Shape: gpu.MIG, Placement: p}}, instance: instance}
			}
		}
		t.Fatalf("no placement of %d at %d", profile, start)
		return allocation{}
	}
	room := func(held ...allocation) map[string]int {
		all := cards(node, held)
		return all[0].freeProfiles()
	}
	if got := room(); got["1g.10gb"] != 7 || got["3g.40gb"] != 2 || got["7g.80gb"] != 1 {
		t.Errorf("an idle H100: %v", got)
	}
	// One small MIG device in the middle of each half leaves much memory and no room for half a GPU.
	if got := room(slice(19, 2), slice(19, 6)); got["1g.10gb"] != 5 || got["3g.40gb"] != 0 || got["2g.20gb"] != 2 || got["7g.80gb"] != 0 {
		t.Errorf("a fragmented H100: %v", got)
	}
	if got := room(allocation{use: gpu.Device{GPU: node.GPUs[0].Name(), Use: gpu.Use{Shape: gpu.Whole}}}); got["1g.10gb"] != 0 {
		t.Errorf("a whole H100 in use: %v", got)
	}
	node = gputest.Node(t, "a100-40x2")
	node.GPUs[0].Mode, node.GPUs[0].Pending = gpu.ModeDisabled, gpu.ModeDisabled
	if got := room(); got["1g.5gb"] != 0 {
		t.Errorf("an A100 whose MIG mode needs a reset: %v", got)
	}
}
