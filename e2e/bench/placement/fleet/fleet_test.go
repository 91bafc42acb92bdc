package fleet

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

func states(tb testing.TB, model string) *States {
	tb.Helper()
	g := gputest.Geometry(tb, model)
	s, err := NewStates(g, Plain(g))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// The counts are those of the enumeration in the literature: with seven compute slices 723 states.
func TestStates(t *testing.T) {
	t.Parallel()
	s := states(t, "h100-80")
	var names []string
	for _, p := range s.Profiles {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}, names); diff != "" {
		t.Errorf("profiles, whose order mixes and bound rely on (-want +got):\n%s", diff)
	}
	if len(s.Held) != 723 || len(s.Placements) != 18 {
		t.Errorf("got %d states, %d placements, want 723, 18", len(s.Held), len(s.Placements))
	}
	for state := range s.Held {
		for placement, p := range s.Placements {
			next := s.Taken[state][placement]
			if next == None {
				continue
			}
			if s.Released[next][placement] != state {
				t.Fatalf("%v taken and released: state %d became %d", p, state, s.Released[next][placement])
			}
		}
	}
}

// policies are all of them, by name.
func policies(s *States) map[string]Policy {
	weights := make([]float64, len(s.Profiles))
	for i := range weights {
		weights[i] = float64(i + 1)
	}
	return map[string]Policy{
		"first fit": FirstFit{Published(s)}, "low starts": FirstFit{LowStart(s)}, "best fit": BestFit(s), "worst fit": WorstFit(s),
		"MFI": MFI(s), "loss": LeastLoss(s, weights), "ours": Ours(s, fit.Weights{}), "moving": Moving{Ours(s, fit.Weights{})},
	}
}

// TestPolicies checks on random histories that every policy refuses only demands that do not fit,
// chooses placements that fit, and that taking and releasing keep the state exact.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"h100-80", "a30-24"} {
		s := states(t, model)
		for name, policy := range policies(s) {
			t.Run(model+" "+name, rapid.MakeCheck(func(t *rapid.T) {
				gpus := rapid.IntRange(1, 70).Draw(t, "gpus")
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				f, held := New(s, gpus), []Choice(nil)
				for range 3 * gpus {
					if len(held) > 0 && r.IntN(3) == 0 {
						i := r.IntN(len(held))
						f.Release(held[i])
						held[i] = held[len(held)-1]
						held = held[:len(held)-1]
					}
					profile := r.IntN(len(s.Profiles))
					choice, ok := policy.Choose(f, arrivals.Demand{Kind: profile})
					if ok != (f.Open[profile] > 0) {
						t.Fatalf("%s: chose %v with %d placements open", s.Profiles[profile].Name, ok, f.Open[profile])
					}
					if !ok {
						continue
					}
					if s.Profile[choice.Placement] != profile || s.Taken[f.State[choice.GPU]][choice.Placement] == None {
						t.Fatalf("%s: chose %v on GPU %d, which holds %v", s.Profiles[profile].Name, s.Placements[choice.Placement], choice.GPU, s.Held[f.State[choice.GPU]].Placements())
					}
					f.Take(choice)
					held = append(held, choice)
				}
				verify(t, f, held)
				for _, choice := range held {
					f.Release(choice)
				}
				verify(t, f, nil)
			}))
		}
	}
}

// verify compares the fleet with one that is counted from the held placements.
func verify(t *rapid.T, f *Fleet, held []Choice) {
	want := make([]gpu.Occupancy, len(f.State))
	for i := range want {
		want[i] = f.Geometry.Empty()
	}
	for _, c := range held {
		var err error
		if want[c.GPU], err = want[c.GPU].Take(gpu.Use{Shape: gpu.MIG, Placement: f.Placements[c.Placement]}); err != nil {
			t.Fatal(err)
		}
	}
	free, counts, open := 0, make([]int, len(f.Held)), make([]int, len(f.Profiles))
	known := map[gpu.Occupancy][]int{}
	for i, o := range want {
		if f.Held[f.State[i]] != o {
			t.Fatalf("GPU %d holds %v, want %v", i, f.Held[f.State[i]].Placements(), o.Placements())
		}
		free += o.Free().Count()
		counts[f.State[i]]++
		if known[o] == nil {
			for _, profile := range f.Profiles {
				known[o] = append(known[o], len(f.Geometry.Open(o, profile.ID)))
			}
		}
		open = plus(open, known[o])
	}
	if f.Free != free || !cmp.Equal(f.Count, counts) || !cmp.Equal(f.Open, open) {
		t.Fatalf("free %d, open %v, want %d, %v", f.Free, f.Open, free, open)
	}
	for state, count := range f.Count {
		if first := f.First(state); (first != None) != (count > 0) || first != None && f.State[first] != state {
			t.Fatalf("first GPU in state %d of %d: %d", state, count, first)
		}
	}
}

func stream(shares []float64, seed uint64) *arrivals.Stream {
	return arrivals.Poisson{Rate: 20, Shares: shares, Lifetime: arrivals.Exponential, Count: 4000}.Stream(seed)
}

// One stream gives one tally, and the offered demands do not depend on the policy.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := states(t, "h100-80")
	shares := []float64{.2, .2, .2, .2, .1, .1}
	bound := ReplayRepack(s, 8, stream(shares, 1))
	for name, policy := range policies(s) {
		tally := Replay(s, 8, policy, stream(shares, 1))
		again := Replay(s, 8, policy, stream(shares, 1))
		if !cmp.Equal(tally, again, cmp.AllowUnexported(Tally{})) {
			t.Errorf("%s: two replays of one stream: %+v, %+v", name, tally, again)
		}
		if diff := cmp.Diff(bound.Offered, tally.Offered); diff != "" {
			t.Errorf("%s: offered (-bound +policy):\n%s", name, diff)
		}
		if tally.Acceptance() >= bound.Acceptance() || tally.Acceptance() < bound.Acceptance()/2 {
			t.Errorf("%s: accepted %.3f, the bound %.3f", name, tally.Acceptance(), bound.Acceptance())
		}
		if tally.Allocated() <= 0 || tally.Allocated() >= 1 || tally.Stranded() < 0 {
			t.Errorf("%s: allocated %v, stranded %v", name, tally.Allocated(), tally.Stranded())
		}
	}
}

// TestMoving checks that moves make room, and that moved instances are released at their end.
func TestMoving(t *testing.T) {
	t.Parallel()
	s := states(t, "h100-80")
	shares := []float64{.3, .2, .2, .1, .1, .1}
	still, moving := Ours(s, fit.Weights{}), Moving{Ours(s, fit.Weights{})}
	c, got := newCourse(s, 8, 4000), s.tally()
	c.run(moving, stream(shares, 3), &got)
	if c.Count[0] != 8 {
		t.Errorf("after everything has left, %d of 8 GPUs are empty", c.Count[0])
	}
	want := Replay(s, 8, still, stream(shares, 3))
	if got.Acceptance() <= want.Acceptance() || got.Moved() == 0 || want.Moved() != 0 {
		t.Errorf("moving accepted %.3f with %.3f moves, without moves %.3f with %.3f", got.Acceptance(), got.Moved(), want.Acceptance(), want.Moved())
	}
}

// On each GPU one instance blocks 7g, and it can be moved to the other.
func TestMove(t *testing.T) {
	t.Parallel()
	s := states(t, "h100-80")
	f := New(s, 2)
	prefer := LowStart(s)
	small, other := Choice{GPU: 0, Placement: prefer[p1g][0]}, Choice{GPU: 1, Placement: prefer[p3g][0]}
	f.Take(small)
	f.Take(other)
	moving := Moving{Ours(s, fit.Weights{})}
	from, to, ok := moving.Move(f, arrivals.Demand{Kind: p7g})
	if !ok || from == to || to.GPU == from.GPU || f.State[0] == 0 || f.State[1] == 0 {
		t.Fatalf("from %v to %v, %v", from, to, ok)
	}
	f.Take(Choice{GPU: 1, Placement: prefer[p3g][1]})
	f.Take(Choice{GPU: 0, Placement: prefer[p3g][1]})
	if from, to, ok := moving.Move(f, arrivals.Demand{Kind: p7g}); ok {
		t.Fatalf("from %v to %v: no single move frees a GPU", from, to)
	}
}

// A fleet with room for all demands refuses none.
func TestReplayWithRoom(t *testing.T) {
	t.Parallel()
	s := states(t, "h100-80")
	only7g := []float64{0, 0, 0, 0, 0, 1}
	if got := Replay(s, 100, BestFit(s), stream(only7g, 1)); got.Acceptance() != 1 || got.Stranded() != 0 {
		t.Errorf("whole GPUs on a fleet with room: %+v", got)
	}
	if got := ReplayRepack(s, 100, stream(only7g, 1)); got.Acceptance() != 1 {
		t.Errorf("the bound on a fleet with room: %+v", got)
	}
}
