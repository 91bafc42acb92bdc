package main

import (
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/e2e/bench/placement/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

func newBench(t *testing.T) *bench {
	g := gputest.Geometry(t, model)
	s, err := fleet.NewStates(g, fleet.Plain(g))
	if err != nil {
		t.Fatal(err)
	}
	return &bench{seeds: 2, count: 400, mixes: mixes(), states: s, plots: t.TempDir(), Report: report.New("placement", io.Discard)}
}

func TestMixes(t *testing.T) {
	t.Parallel()
	for _, m := range mixes() {
		sum := 0.0
		for _, share := range m.shares {
			sum += share
		}
		if len(m.shares) != 6 || math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: shares %v", m.name, m.shares)
		}
	}
}

// The default set has the cells of the goals, the full set has all.
func TestCells(t *testing.T) {
	t.Parallel()
	count := func(b *bench) (cells, streams int) {
		for _, c := range b.cells() {
			cells, streams = cells+1, streams+c.seeds
		}
		return cells, streams
	}
	b := newBench(t)
	b.seeds = 10
	// Five mixes: four loads and one of heavy tails with ten streams, many GPUs with three.
	if cells, streams := count(b); cells != 30 || streams != 265 {
		t.Errorf("default: %d cells, %d streams", cells, streams)
	}
	b.full = true
	if cells, streams := count(b); cells != 5*3*4*2 || streams != 10*cells {
		t.Errorf("full: %d cells, %d streams", cells, streams)
	}
	b.full, b.sizes, b.loads = false, []int{1000}, []float64{.7}
	if cells, _ := count(b); cells != 10 {
		t.Errorf("1,000 GPUs at a load of .7: %d cells", cells)
	}
}

// A run has all policies in every cell, is repeatable, and draws the plots.
func TestRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.mixes = b.mixes[:1]
	b.sizes, b.loads = []int{goalGPUs}, []float64{.85, goalLoad}
	run := func() []result {
		results, err := b.run(t.Context(), b.cells(), b.policies)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	results := run()
	for i, r := range run() {
		for name, tally := range r.tallies {
			if diff := cmp.Diff(results[i].tallies[name], tally, cmp.AllowUnexported(fleet.Tally{})); diff != "" {
				t.Errorf("%s, %s: two runs (-first +second):\n%s", r.cell, name, diff)
			}
		}
		if len(r.tallies) != len(peers())+2 {
			t.Errorf("%s: %d policies", r.cell, len(r.tallies))
		}
	}
	b.addRows(results)
	if err := b.draw(results); err != nil {
		t.Fatal(err)
	}
	plot, err := os.ReadFile(filepath.Join(b.plots, "placement-uniform.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(plot, new(struct{})); err != nil {
		t.Errorf("the plot is no XML: %v", err)
	}
	if got := strings.Count(string(plot), "<polyline"); got != len(peers())+2 {
		t.Errorf("the plot has %d lines", got)
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.only = []string{"MFI"}
	if got := b.policies(b.mixes[0].shares); len(got) != 2 || got["MFI"] == nil || got[ours] == nil {
		t.Errorf("only MFI: got %d policies", len(got))
	}
	if err := b.selectMixes("bimodal,no-1gd"); err != nil || len(b.mixes) != 2 {
		t.Errorf("two mixes: got %d, %v", len(b.mixes), err)
	}
	if err := b.selectMixes("bimodal,other"); err == nil {
		t.Error("a mix that does not exist was taken")
	}
}

func TestOpenb(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	folder := t.TempDir()
	path := filepath.Join(folder, arrivals.OpenbPods)
	trace := `name,num_gpu,gpu_milli,creation_time,deletion_time
a,1,460,30,90
b,1,1000,10,20
c,0,0,10,20
d,2,1000,10,20
e,1,140,50,50
f,1,142,60,70
g,1,280,60,80
`
	if err := os.WriteFile(path, []byte(trace), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := b.openbDemands(folder)
	if err != nil {
		t.Fatal(err)
	}
	// In the profiles' order 0 is 1g, 2 is 2g, 4 is 4g and 5 is 7g.
	want := []arrivals.Demand{{Kind: 5, Arrives: 10, Leaves: 20}, {Kind: 4, Arrives: 30, Leaves: 90}, {Kind: 0, Arrives: 60, Leaves: 70}, {Kind: 2, Arrives: 60, Leaves: 80}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("demands (-want +got):\n%s", diff)
	}
	for name, broken := range map[string]string{"no column": "name,num_gpu\n", "no number": strings.Replace(trace, "460", "x", 1), "empty": ""} {
		if err := os.WriteFile(path, []byte(broken), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := b.openbDemands(folder); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
