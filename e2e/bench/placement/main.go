// Command placement replays streams of demands for MIG profiles through placement policies: the in-tree
// scheduler's first fit, policies from the literature, ours, and the bound of free migration. It is a
// simulation without a cluster. The policy called ours consists of the functions that the scheduler plugin
// calls.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/bench/placement/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// model is the GPU of every fleet. All parts with seven compute slices have its placements.
const model = "h100-80"

func main() {
	b := &bench{mixes: mixes()}
	flag.IntVar(&b.seeds, "seeds", 10, "replay this many streams; of fleets above 100 GPUs three in the default set")
	flag.IntVar(&b.count, "arrivals", 30_000, "demands of a stream; the first quarter does not count")
	flag.StringVar(&b.openb, "openb", os.Getenv("OPENB"), "folder of the openb trace; OPENB has it, too")
	flag.StringVar(&b.plots, "plots", "bench/out", "folder for the plots")
	flag.BoolVar(&b.full, "full", os.Getenv("FULL") == "1", "every size, load and lifetime with all seeds; also FULL=1")
	flag.Func("mixes", "only these, such as uniform,bimodal", b.selectMixes)
	flag.Func("gpus", "only these sizes of fleets, such as 100,1000", numbers(&b.sizes, strconv.Atoi))
	flag.Func("loads", "only these loads, such as 0.85,0.95", numbers(&b.loads, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }))
	flag.Func("policies", "only these in addition to ours and the bound, such as 'first fit,MFI'", func(s string) error {
		b.only = strings.Split(s, ",")
		return nil
	})
	flag.Parse()
	os.Exit(report.Main("placement", b.measure))
}

// bench is one run.
type bench struct {
	seeds, count int
	full         bool
	openb, plots string
	mixes        []mix
	sizes        []int
	loads        []float64
	only         []string
	*report.Report
	states *fleet.States
}

func (b *bench) measure(ctx context.Context, r *report.Report) error {
	b.Report = r
	m, err := catalog.FindModel(model)
	if err != nil {
		return err
	}
	geometry, err := m.Geometry()
	if err != nil {
		return err
	}
	if b.states, err = fleet.NewStates(geometry, fleet.Plain(geometry)); err != nil {
		return err
	}
	cells := b.cells()
	results, err := b.run(ctx, cells, b.policies)
	if err != nil {
		return err
	}
	b.addRows(results)
	if err := b.draw(results); err != nil {
		return err
	}
	return b.trace()
}

// selectMixes keeps the mixes that are named.
func (b *bench) selectMixes(names string) error {
	wanted := strings.Split(names, ",")
	b.mixes = slices.DeleteFunc(b.mixes, func(m mix) bool { return !slices.Contains(wanted, m.name) })
	if len(b.mixes) < len(wanted) {
		return fmt.Errorf("%q: there are uniform, skew-small, skew-big, bimodal, no-1gd", names)
	}
	return nil
}

// numbers reads a list of numbers.
func numbers[T any](list *[]T, read func(string) (T, error)) func(string) error {
	return func(text string) error {
		for _, part := range strings.Split(text, ",") {
			n, err := read(part)
			if err != nil {
				return err
			}
			*list = append(*list, n)
		}
		return nil
	}
}
