package victims

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// nodeOf returns a machine of the catalogue whose GPUs are alike.
func nodeOf(t testing.TB, machine string) fit.Node {
	t.Helper()
	hardware := gputest.Node(t, machine)
	n := fit.Node{Name: "node", Wiring: topology.NewWiring(hardware.GPUs)}
	kind := fit.NewKind(hardware.GPUs[0].Geometry, fit.Weights{})
	position := map[string]int{}
	for i, g := range hardware.GPUs {
		n.GPUs = append(n.GPUs, fit.GPU{Name: g.Name(), Kind: kind, Occupancy: g.Empty(4)})
		position[g.Name()] = i
	}
	shapes := []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare}
	for _, d := range hardware.Devices(gpu.Offer{Shapes: shapes, Shares: 4}) {
		n.Devices = append(n.Devices, fit.Device{GPU: position[d.GPU], Use: d.Use})
	}
	return n
}

// demandOf returns a demand for count devices of those that pass the filter.
func demandOf(n fit.Node, count int, pass func(gpu.Use) bool) *fit.Requirements {
	a := fit.Alternative{Candidates: fit.NewSet(len(n.Devices)), Count: count, Shares: make([]gpu.Share, len(n.Devices))}
	for i, d := range n.Devices {
		if pass(d.Use) {
			a.Candidates.Add(i)
		}
		if d.Use.Shape.Shared() {
			a.Shares[i] = gpu.Share{MemoryBytes: 10 << 30, Shares: 1}
		}
	}
	return &fit.Requirements{Requests: []fit.Request{{Name: "claim/request", Alternatives: []fit.Alternative{a}}}}
}

func whole(u gpu.Use) bool { return u.Shape == gpu.Whole }

func profile(n fit.Node, name string) func(gpu.Use) bool {
	return func(u gpu.Use) bool {
		p, ok := n.GPUs[0].Kind.Geometry.Profile(u.Placement.Profile)
		return u.Shape == gpu.MIG && ok && p.Name == name
	}
}

// hold takes the first free device that passes and returns its holder.
func hold(t testing.TB, n *fit.Node, h Holder, gpuAt int, pass func(gpu.Use) bool) Holder {
	t.Helper()
	for _, d := range n.Devices {
		if d.GPU != gpuAt || !pass(d.Use) {
			continue
		}
		use := d.Use
		if use.Shape.Shared() {
			use.Share = gpu.Share{MemoryBytes: 10 << 30, Shares: 1}
		}
		if after, err := n.GPUs[gpuAt].Occupancy.Take(use); err == nil {
			n.GPUs[gpuAt].Occupancy = after
			h.Held = append(h.Held, Held{GPU: gpuAt, Use: use})
			return h
		}
	}
	t.Fatalf("nothing is free on GPU %d", gpuAt)
	return h
}

func TestVictims(t *testing.T) {
	const one, three = "1g.10gb", "3g.40gb"
	tests := map[string]struct {
		// fill returns the holders.
		fill   func(n *fit.Node, hold func(h Holder, gpuAt int, pass func(gpu.Use) bool) Holder) []Holder
		demand func(n fit.Node) *fit.Requirements
		want   []int
		no     bool
	}{
		"no victim when it fits": {
			fill: func(_ *fit.Node, hold func(Holder, int, func(gpu.Use) bool) Holder) []Holder {
				return []Holder{hold(Holder{}, 0, whole)}
			},
			demand: func(n fit.Node) *fit.Requirements { return demandOf(n, 1, whole) },
		},
		"the GPU that costs one, not the one that costs many": {
			fill: func(n *fit.Node, hold func(Holder, int, func(gpu.Use) bool) Holder) []Holder {
				var all []Holder
				for range 7 {
					all = append(all, hold(Holder{}, 0, profile(*n, one)))
				}
				return append(all, hold(Holder{}, 1, whole))
			},
			demand: func(n fit.Node) *fit.Requirements { return demandOf(n, 1, profile(n, three)) },
			want:   []int{7},
		},
		"the half that costs less": {
			fill: func(n *fit.Node, hold func(Holder, int, func(gpu.Use) bool) Holder) []Holder {
				all := []Holder{hold(Holder{Priority: 100}, 1, whole)}
				for range 7 {
					all = append(all, hold(Holder{}, 0, profile(*n, one)))
				}
				return all
			},
			demand: func(n fit.Node) *fit.Requirements { return demandOf(n, 1, profile(n, three)) },
			want:   []int{1, 2, 3}, // small instances take the upper half first, which has room for three
		},
		"many of low priority before one of higher": {
			fill: func(n *fit.Node, hold func(Holder, int, func(gpu.Use) bool) Holder) []Holder {
				all := []Holder{hold(Holder{Priority: 5}, 1, whole)}
				for range 3 {
					all = append(all, hold(Holder{Priority: 1}, 0, profile(*n, one)))
				}
				return all
			},
			demand: func(n fit.Node) *fit.Requirements { return demandOf(n, 1, whole) },
			want:   []int{1, 2, 3},
		},
		"protected ones last": {
			fill: func(_ *fit.Node, hold func(Holder, int, func(gpu.Use) bool) Holder) []Holder {
				return []Holder{hold(Holder{Protected: true}, 0, whole), hold(Holder{Priority: 9}, 1, whole)}
			},
			demand: func(n fit.Node) *fit.Requirements { return demandOf(n, 1, whole) },
			want:   []int{1},
		},
		"one share of a shared GPU": {
			fill: func(_ *fit.Node, hold func(Holder, int, func(gpu.Use) bool) Holder) []Holder {
				share := func(u gpu.Use) bool { return u.Shape == gpu.TimeShare }
				all := []Holder{hold(Holder{Priority: 9}, 1, whole)}
				for range 4 {
					all = append(all, hold(Holder{}, 0, share))
				}
				return all
			},
			demand: func(n fit.Node) *fit.Requirements {
				return demandOf(n, 1, func(u gpu.Use) bool { return u.Shape == gpu.TimeShare })
			},
			want: []int{4},
		},
		"a claim of two GPUs takes both back": {
			fill: func(_ *fit.Node, hold func(Holder, int, func(gpu.Use) bool) Holder) []Holder {
				return []Holder{hold(hold(Holder{}, 0, whole), 1, whole)}
			},
			demand: func(n fit.Node) *fit.Requirements { return demandOf(n, 2, whole) },
			want:   []int{0},
		},
		"no victim when others block it": {
			fill: func(_ *fit.Node, hold func(Holder, int, func(gpu.Use) bool) Holder) []Holder {
				hold(Holder{}, 0, whole) // of higher priority: no holder
				return []Holder{hold(Holder{}, 1, whole)}
			},
			demand: func(n fit.Node) *fit.Requirements { return demandOf(n, 2, whole) },
			no:     true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := nodeOf(t, "h100x2")
			holders := test.fill(&n, func(h Holder, gpuAt int, pass func(gpu.Use) bool) Holder { return hold(t, &n, h, gpuAt, pass) })
			got, ok, err := SelectVictims(&n, test.demand(n), holders, nil)
			if err != nil || ok == test.no {
				t.Fatalf("fits %v, %v", ok, err)
			}
			if diff := gocmp.Diff(test.want, got.Victims); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHolderThatHoldsNothing(t *testing.T) {
	n := nodeOf(t, "h100x2")
	holders := []Holder{{Held: []Held{{GPU: 0, Use: gpu.Use{Shape: gpu.Whole}}}}}
	if _, _, err := SelectVictims(&n, demandOf(n, 1, whole), holders, nil); err == nil {
		t.Error("evicted who holds nothing")
	}
}

// TestVictimsAreTheFewest compares with all sets of holders that could leave.
func TestVictimsAreTheFewest(t *testing.T) {
	full := nodeOf(t, "h100x2")
	rapid.Check(t, func(t *rapid.T) {
		n := full
		n.GPUs = slices.Clone(full.GPUs)
		var holders []Holder
		for range rapid.IntRange(1, 8).Draw(t, "attempts") {
			d := n.Devices[rapid.IntRange(0, len(n.Devices)-1).Draw(t, "device")]
			use := d.Use
			if use.Shape.Shared() {
				use.Share = gpu.Share{MemoryBytes: 10 << 30, Shares: 1}
			}
			after, err := n.GPUs[d.GPU].Occupancy.Take(use)
			if err != nil {
				continue
			}
			n.GPUs[d.GPU].Occupancy = after
			holders = append(holders, Holder{
				Priority: rapid.Int32Range(0, 2).Draw(t, "priority"), Protected: rapid.Bool().Draw(t, "protected"),
				Held: []Held{{GPU: d.GPU, Use: use}},
			})
		}
		wanted := n.Devices[rapid.IntRange(0, len(n.Devices)-1).Draw(t, "wanted")].Use
		count := rapid.IntRange(1, 2).Draw(t, "count")
		demand := demandOf(n, count, func(u gpu.Use) bool {
			return u.Shape == wanted.Shape && u.Placement.Profile == wanted.Placement.Profile
		})
		got, ok, err := SelectVictims(&n, demand, holders, nil)
		if err != nil {
			t.Fatal(err)
		}
		cheapest, possible := bruteForce(t, n, demand, holders)
		if ok != possible {
			t.Fatalf("fits: %v, of all sets of holders one that leaves makes it so: %v", ok, possible)
		}
		if !ok {
			return
		}
		if !fits(t, n, demand, holders, got.Victims) {
			t.Fatalf("does not fit without %v", got.Victims)
		}
		for i := range got.Victims {
			if rest := slices.Delete(slices.Clone(got.Victims), i, i+1); fits(t, n, demand, holders, rest) {
				t.Errorf("%v give way, %v would do", got.Victims, rest)
			}
		}
		if count == 1 && hurts(holders, got, cheapest) > 0 {
			t.Errorf("%v give way, %v hurts less", got.Victims, cheapest.Victims)
		}
	})
}

func hurts(holders []Holder, a, b Selection) int {
	return cmp.Or(cmp.Compare(violations(holders, a), violations(holders, b)), slices.Compare(priorities(holders, a), priorities(holders, b)))
}

// bruteForce tries every set of holders.
func bruteForce(t *rapid.T, n fit.Node, req *fit.Requirements, holders []Holder) (best Selection, possible bool) {
	for set := range 1 << len(holders) {
		var answer Selection
		for i := range holders {
			if set&(1<<i) != 0 {
				answer.Victims = append(answer.Victims, i)
			}
		}
		if fits(t, n, req, holders, answer.Victims) && (!possible || hurts(holders, answer, best) < 0) {
			best, possible = answer, true
		}
	}
	return best, possible
}

func fits(t *rapid.T, n fit.Node, req *fit.Requirements, holders []Holder, victims []int) bool {
	n.GPUs = slices.Clone(n.GPUs)
	for _, i := range victims {
		for _, held := range holders[i].Held {
			after, err := n.GPUs[held.GPU].Occupancy.Release(held.Use)
			if err != nil {
				t.Fatal(err)
			}
			n.GPUs[held.GPU].Occupancy = after
		}
	}
	_, ok := fit.Choose(&n, req, nil)
	return ok
}
