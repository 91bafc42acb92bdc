package fit_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	whole := gpu.Use{Shape: gpu.Whole}
	slice := func(profile, start int) gpu.Use { return mig(gpu.Placement{Profile: profile, Start: start, Size: 1}) }
	tests := map[string]struct {
		held   map[int][]gpu.Use
		demand func(*fit.Node) *fit.Requirements
		want   string
	}{
		"nothing to refuse": {nil, func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.Whole, "")) }, ": "},
		"no half": {
			map[int][]gpu.Use{0: {slice(19, 2), slice(19, 4)}, 1: {{Shape: gpu.MPS}}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "3g.40gb")) },
			"claim/gpu: needs mig3g.40gb (3g.40gb: 4 memory slices at 0 or 4); gpu-0000-19-00-0: free memory slices [0 1 3 5 6 7]; gpu-0000-3b-00-0: in use as mps",
		},
		"no media engine": {
			map[int][]gpu.Use{0: {slice(20, 2)}, 1: {whole}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "1g.10gb+me")) },
			"claim/gpu: needs mig1g.10gb+me (1g.10gb+me: 1 memory slice at 0, 1, 2, 3, 4, 5 or 6); gpu-0000-19-00-0: free memory slices [0 1 3 4 5 6 7], needs 1 ofa-engines, 0 left; gpu-0000-3b-00-0: in use as gpu",
		},
		"too few GPUs": {
			map[int][]gpu.Use{0: {slice(19, 2)}},
			func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 2, gpu.Whole, "")) },
			"claim/gpu: needs 2 x gpu (an idle GPU); gpu-0000-19-00-0: in use as mig; gpu-0000-3b-00-0: free",
		},
		"no such device": {
			nil, func(n *fit.Node) *fit.Requirements { return demand(alternativeFor(n, 1, gpu.MIG, "9g")) },
			"claim/gpu: needs mig9g; no matching untainted device on this node",
		},
		"every alternative": {
			map[int][]gpu.Use{0: {whole}, 1: {whole}},
			func(n *fit.Node) *fit.Requirements {
				first, second := alternativeFor(n, 1, gpu.Whole, ""), alternativeFor(n, 1, gpu.TimeShare, "")
				first.Name, second.Name = "all", "some"
				return demand(first, second)
			},
			"claim/gpu: all needs gpu (an idle GPU); gpu-0000-19-00-0: in use as gpu; gpu-0000-3b-00-0: in use as gpu; or " +
				"some needs timeshare (room on a GPU that is idle or in use as timeshare); gpu-0000-19-00-0: in use as gpu; gpu-0000-3b-00-0: in use as gpu",
		},
		"the second request": {
			nil, func(n *fit.Node) *fit.Requirements {
				d := demand(alternativeFor(n, 2, gpu.Whole, ""))
				d.Requests = append(d.Requests, fit.Request{Name: "claim/more", Alternatives: []fit.Alternative{alternativeFor(n, 1, gpu.Whole, "")}})
				return d
			},
			"claim/more: needs gpu (an idle GPU); gpu-0000-19-00-0: free; gpu-0000-3b-00-0: free; not in addition to claim/gpu",
		},
		"the constraint": {
			nil, func(n *fit.Node) *fit.Requirements {
				d := demand(alternativeFor(n, 2, gpu.Whole, ""))
				values := func(f func(fit.Device) int32) (all []int32) {
					for _, device := range n.Devices {
						all = append(all, f(device))
					}
					return all
				}
				d.Constraints = []fit.Constraint{
					{Attribute: "model", Members: []fit.Member{{Request: 0, Alternative: -1}}, Values: values(func(fit.Device) int32 { return 1 })},
					{Attribute: "uuid", Members: []fit.Member{{Request: 0, Alternative: 0}}, Values: values(func(d fit.Device) int32 { return int32(d.GPU + 1) })},
				}
				return d
			},
			"claim/gpu: devices are free, but none satisfy equal uuid",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeOf(t, "h100x2")
			n.GPUs[0].Name, n.GPUs[1].Name = "gpu-0000-19-00-0", "gpu-0000-3b-00-0"
			for position, uses := range test.held {
				hold(t, n, position, uses...)
			}
			if got := fit.Explain(n, test.demand(n), nil).String(); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

// TestExplainRefusesAsChooseDoes holds the two together.
func TestExplainRefusesAsChooseDoes(t *testing.T) {
	t.Parallel()
	machines := []*fit.Node{nodeOf(t, "h100x2"), nodeOf(t, "a30x4l40sx4"), nodeOf(t, "rtxpro6000x4")}
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, machines)
		d := drawDemand(t, n)
		choice, ok := fit.Choose(n, d, nil)
		refusal := fit.Explain(n, d, nil)
		if ok != (refusal == fit.Refusal{}) || !ok && (refusal.Request == "" || refusal.Reason == "") {
			t.Fatalf("%s: served %v, explained as %q", describe(n, d), ok, refusal)
		}
		if ok && fit.Describe(n, d, choice) == "" {
			t.Fatal("no description")
		}
	})
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	n := nodeOf(t, "h100x2")
	n.GPUs[0].Name, n.GPUs[1].Name = "gpu-0", "gpu-1"
	tests := map[string]struct {
		demand *fit.Requirements
		want   string
	}{
		"a slice":   {demand(alternativeFor(n, 1, gpu.MIG, "3g.40gb")), "claim/gpu: 3g.40gb at memory slice 4 of gpu-0; costs 21.0 of 82.0, opens 1 idle GPU"},
		"two GPUs":  {demand(alternativeFor(n, 2, gpu.Whole, "")), "claim/gpu: gpu-0, gpu-1; costs 82.0 of 82.0, opens 2 idle GPUs, link quality 1.00"},
		"a share":   {demand(alternativeFor(n, 1, gpu.TimeShare, "")), "claim/gpu: gpu-0 as timeshare; costs 41.0 of 82.0, opens 1 idle GPU"},
		"a monitor": {demand(alternativeFor(n, 1, gpu.Monitor, "")), "claim/gpu: gpu-0 as monitor; costs 0.0 of 82.0, opens 0 idle GPUs"},
	}
	for name, test := range tests {
		choice, ok := fit.Choose(n, test.demand, nil)
		if !ok {
			t.Fatalf("%s: not served", name)
		}
		if got := fit.Describe(n, test.demand, choice); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
