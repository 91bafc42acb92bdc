package fit_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// half holds something of every other GPU.
func half(b *testing.B, machine string) *fit.Node {
	b.Helper()
	n := nodeOf(b, machine)
	for g := 0; g < len(n.GPUs); g += 2 {
		if geometry := n.GPUs[g].Kind.Geometry; geometry != nil {
			profile := geometry.Profiles()[0]
			hold(b, n, g, mig(geometry.Placements(profile.ID)[g%3]))
		} else {
			hold(b, n, g, gpu.Use{Shape: gpu.Whole})
		}
	}
	return n
}

// processorTime returns what the process has used so far: on a busy machine the wall clock is not meaningful.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkWiring measures the tables of a pattern of links, which are made once.
func BenchmarkWiring(b *testing.B) {
	for _, machine := range []string{"h100x8", "mixed16"} {
		gpus := gputest.Node(b, machine).GPUs
		b.Run(machine, func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				topology.NewWiring(gpus).Quality([]int{0, 1})
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkKind measures a geometry: its tables, and every row of them.
func BenchmarkKind(b *testing.B) {
	for _, model := range []string{"h100-80", "rtxpro6000-96"} {
		g := gputest.Geometry(b, model)
		b.Run(model, func(b *testing.B) {
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				kind := fit.NewKind(g, fit.Weights{})
				for mask := range 1 << g.Slices() {
					kind.Value(kind.State(g.Empty().Withhold(gpu.Mask(mask))))
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkChoose measures one node.
func BenchmarkChoose(b *testing.B) {
	h100 := half(b, "h100x8")
	empty := nodeOf(b, "h100x8")
	mixed := nodeOf(b, "mixed16")
	rtx := half(b, "rtxpro6000x4")
	two := demand(alternativeFor(h100, 1, gpu.MIG, "1g.10gb"))
	two.Requests = append(two.Requests, demand(alternativeFor(h100, 1, gpu.MIG, "3g.40gb")).Requests...)
	same := demand(alternativeFor(empty, 4, gpu.Whole, ""))
	constraint := fit.Constraint{Attribute: "numaNode", Members: []fit.Member{{Request: 0, Alternative: -1}}}
	for _, d := range empty.Devices {
		constraint.Values = append(constraint.Values, int32(empty.GPUs[d.GPU].NUMA+1))
	}
	same.Constraints = append(same.Constraints, constraint)
	for _, bench := range []struct {
		name   string
		node   *fit.Node
		demand *fit.Requirements
	}{
		{"8xH100/1g", h100, demand(alternativeFor(h100, 1, gpu.MIG, "1g.10gb"))},
		{"8xH100/3g", h100, demand(alternativeFor(h100, 1, gpu.MIG, "3g.40gb"))},
		{"8xH100/any-mig", h100, &fit.Requirements{Requests: []fit.Request{{Alternatives: []fit.Alternative{{Count: 1, Candidates: selected(h100, func(d fit.Device) bool { return d.Use.Shape == gpu.MIG })}}}}}},
		{"4xRTX/1g", rtx, demand(alternativeFor(rtx, 1, gpu.MIG, "1g.24gb"))},
		{"8xH100/1-whole", empty, demand(alternativeFor(empty, 1, gpu.Whole, ""))},
		{"8xH100/2-whole", h100, demand(alternativeFor(h100, 2, gpu.Whole, ""))},
		{"8xH100/4-whole", empty, demand(alternativeFor(empty, 4, gpu.Whole, ""))},
		{"8xH100/8-whole", empty, demand(alternativeFor(empty, 8, gpu.Whole, ""))},
		{"16-mixed/8-whole", mixed, demand(alternativeFor(mixed, 8, gpu.Whole, ""))},
		{"8xH100/mps", h100, demand(alternativeFor(h100, 1, gpu.MPS, ""))},
		{"8xH100/1g+3g", h100, two},
		{"8xH100/3-of-1g", h100, demand(alternativeFor(h100, 3, gpu.MIG, "1g.10gb"))},
		{"8xH100/4-whole-one-NUMA", empty, same},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			if _, ok := fit.Choose(bench.node, bench.demand, nil); !ok {
				b.Fatal("not served")
			}
			before := processorTime(b)
			for b.Loop() {
				fit.Choose(bench.node, bench.demand, nil)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
