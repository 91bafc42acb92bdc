package fit_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// The worst claims that the API admits: 32 requests (DeviceRequestsMaxSize) with 8 alternatives each
// (FirstAvailableDeviceRequestMaxSize).
const (
	mostRequests     = 32
	mostAlternatives = 8
)

// impossible returns an alternative that no device serves.
func impossible(n *fit.Node) fit.Alternative {
	return fit.Alternative{Count: 1, Candidates: fit.NewSet(len(n.Devices))}
}

// oneSlice returns alternatives for one MIG device of one memory slice, each without other devices, so that no
// two of them require the same.
func oneSlice(n *fit.Node, count, salt int) []fit.Alternative {
	var all []fit.Alternative
	for i := range count {
		a := alternativeFor(n, 1, gpu.MIG, "1g.10gb")
		left := 0
		for device := range n.Devices {
			if a.Candidates.Has(device) {
				if left++; left%11 == (i+salt)%11 {
					a.Candidates[device/64] &^= 1 << (device % 64)
				}
			}
		}
		all = append(all, a)
	}
	return all
}

// hostile returns a demand of so many requests with different alternatives.
func hostile(n *fit.Node, requests, alternatives int) *fit.Requirements {
	d := &fit.Requirements{}
	for i := range requests {
		d.Requests = append(d.Requests, fit.Request{Name: fmt.Sprintf("claim/%d", i), Alternatives: oneSlice(n, alternatives, i)})
	}
	return d
}

// TestChooseEndsWithinTheBudget searches the worst demands on a node with two GPUs, which have 14 places for them.
func TestChooseEndsWithinTheBudget(t *testing.T) {
	t.Parallel()
	n := nodeOf(t, "h100x2")
	cannot := fit.Request{Name: "claim/cannot", Alternatives: []fit.Alternative{impossible(n)}}
	with := func(d *fit.Requirements, r fit.Request) *fit.Requirements {
		d.Requests = append(d.Requests, r)
		return d
	}
	tests := map[string]struct {
		demand *fit.Requirements
		fits   bool
		// steps is the number that the search may take at most.
		steps int
	}{
		"7 requests with alternatives, one that cannot be served":  {with(hostile(n, 7, mostAlternatives), cannot), false, 5_000},
		"31 requests with alternatives, one that cannot be served": {with(hostile(n, 31, mostAlternatives), cannot), false, fit.NodeSteps},
		"32 requests with alternatives":                            {hostile(n, mostRequests, mostAlternatives), false, fit.NodeSteps},
		"15 requests":                                              {hostile(n, 15, 1), false, fit.NodeSteps},
		"18 requests":                                              {hostile(n, 18, 1), false, fit.NodeSteps},
		"7 requests with alternatives":                             {hostile(n, 7, mostAlternatives), true, fit.NodeSteps},
		"12 requests":                                              {hostile(n, 12, 1), true, fit.NodeSteps},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fit.NewBudget(fit.NodeSteps)
			choice, ok := fit.Choose(n, test.demand, b)
			if ok != test.fits {
				t.Errorf("served %t, want %t (budget exceeded: %t)", ok, test.fits, b.Exceeded())
			}
			if ok {
				if err := valid(n, test.demand, choice); err != nil {
					t.Error(err)
				}
			}
			if b.Spent() > test.steps {
				t.Errorf("%d steps, want at most %d", b.Spent(), test.steps)
			}
			t.Logf("%d steps, exceeded %t", b.Spent(), b.Exceeded())
		})
	}
}

// TestBudgetChangesNoOtherResult compares a search with a budget to one without: unless the budget is exceeded, the
// results are equal.
func TestBudgetChangesNoOtherResult(t *testing.T) {
	t.Parallel()
	nodes := []*fit.Node{nodeOf(t, "h100x2"), nodeOf(t, "a30x4l40sx4"), nodeOf(t, "dgx1")}
	exceeded, complete := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, nodes)
		d := drawDemand(t, n)
		b := fit.NewBudget(rapid.IntRange(1, 2000).Draw(t, "steps"))
		got, ok := fit.Choose(n, d, b)
		if b.Exceeded() {
			exceeded++
			if ok && valid(n, d, got) != nil {
				t.Fatalf("%s: %v is no choice: %v", describe(n, d), got, valid(n, d, got))
			}
			return
		}
		complete++
		want, wanted := fit.Choose(n, d, nil)
		if ok != wanted || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s: %v with a budget, %v without", describe(n, d), got, want)
		}
	})
	if exceeded == 0 || complete == 0 {
		t.Errorf("%d searches exceeded the budget, %d did not: the draw shows nothing", exceeded, complete)
	}
}

// BenchmarkStep measures the duration of a step, which StepTime bounds, in searches that exceed the budget.
func BenchmarkStep(b *testing.B) {
	for _, machine := range []string{"h100x2", "h100x8"} {
		n := nodeOf(b, machine)
		constrained := hostile(n, 20, mostAlternatives)
		values := make([]int32, len(n.Devices))
		for i := range values {
			values[i] = int32(i%40 + 1)
		}
		constrained.Constraints = []fit.Constraint{{Distinct: true, Values: values}}
		for r := range constrained.Requests {
			constrained.Constraints[0].Members = append(constrained.Constraints[0].Members, fit.Member{Request: r, Alternative: -1})
		}
		for name, d := range map[string]*fit.Requirements{
			"alternatives": hostile(n, mostRequests, mostAlternatives), "requests": hostile(n, 18, 1),
			"many requests": hostile(n, 90, 1), "distinct": constrained,
		} {
			b.Run(machine+"/"+name, func(b *testing.B) {
				steps := 0
				for b.Loop() {
					budget := fit.NewBudget(fit.NodeSteps)
					fit.Choose(n, d, budget)
					steps += budget.Spent()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
				b.ReportMetric(float64(steps)/float64(b.N), "steps/op")
			})
		}
	}
}
