package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/subject"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// The goals.
const (
	// leastOfNull is the goal as a part of the null scheduler's throughput.
	leastOfNull = 0.9
	// mostOfInTree and mostOfInTreeWithMIG are the goals as parts of the in-tree plugin's work.
	mostOfInTree, mostOfInTreeWithMIG = 0.2, 0.02
	// slowestCycle is in ms; slowestScore, for our plugin on all nodes of a pod, as well.
	slowestCycle, slowestScore = 25, 0.5
	// slowestRead is in ms for a node, from the start of a scheduler until the devices of all nodes are in the index.
	slowestRead = 1
)

// median returns the median of a figure over the rounds.
func (all results) median(v subject.Variant, of func(subject.Outcome) float64) float64 {
	values := make([]float64, 0, len(all[v]))
	for _, o := range all[v] {
		values = append(values, of(o))
	}
	return middle(values)
}

// partOfNull returns the median over the rounds of our throughput in proportion to that of the null scheduler.
func (all results) partOfNull() float64 {
	parts := make([]float64, 0, len(all[subject.Null]))
	for i, null := range all[subject.Null] {
		parts = append(parts, all[subject.Ours][i].Rate()/null.Rate())
	}
	return middle(parts)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// compared returns the row of a figure, with that of the in-tree plugin.
func (all results) compared(name string, of func(subject.Outcome) float64, unit string) report.Row {
	return report.Figure(name, all.median(subject.Ours, of), unit).Peer("in-tree", all.median(subject.InTree, of))
}

// proportion returns the row of a figure in proportion to that of the in-tree plugin.
func (all results) proportion(name string, of func(subject.Outcome) float64) report.Row {
	return report.Figure(name+", in proportion to in-tree", all.median(subject.Ours, of)/all.median(subject.InTree, of), "times")
}

// addRows adds the rows of a contest.
func (b *bench) addRows(nodes int, t contest, all results) {
	where := fmt.Sprintf("%d nodes, %s", nodes, t.name)
	null := all.median(subject.Null, subject.Outcome.Rate)
	b.Add(
		more(all.compared(where+": pods bound in a second", subject.Outcome.Rate, "1/s").Peer("null", null)),
		report.Figure(where+": throughput, in proportion to the null scheduler", all.partOfNull(), "times").
			Peer("in-tree", all.median(subject.InTree, subject.Outcome.Rate)/null).AtLeast(leastOfNull),
	)
	for _, f := range figures() {
		row := all.compared(where+": "+f.name, f.of, f.unit)
		if f.null {
			row = row.Peer("null", all.median(subject.Null, f.of))
		}
		b.Add(row)
	}
	algorithm, cpu := all.proportion(where+": scheduling algorithm, mean", mean), all.proportion(where+": processor time for a pod", perPod)
	cycle := all.compared(where+": scheduling cycle, p99", slowCycle, "ms")
	if t.mix != fleet.Plain {
		most := mostOfInTree
		if t.mix == fleet.Mixed {
			most = mostOfInTreeWithMIG
		}
		algorithm, cpu, cycle = algorithm.AtMost(most), cpu.AtMost(most), cycle.AtMost(slowestCycle)
		read := func(o subject.Outcome) float64 { return report.Milliseconds(o.Read) / float64(nodes) }
		b.Add(all.compared(where+": Score of all plugins, p99", score, "ms"), all.compared(where+": first read of the cluster, for a node", read, "ms").AtMost(slowestRead))
	}
	b.Add(algorithm, cpu, cycle)
	for _, v := range slices.Sorted(maps.Keys(all)) {
		for _, o := range all[v] {
			if o.Bound < o.Pods {
				b.Note("%s: %s bound %d of %d pods in %v", where, v, o.Bound, o.Pods, b.limit)
			}
		}
	}
	b.Note("%s: our plugin's share, on average in ms: %s", where, shares(all[subject.Ours][0]))
}

// more marks a row of which more is better.
func more(r report.Row) report.Row {
	r.Better = report.Higher
	return r
}

// figure is a row without a goal.
type figure struct {
	name, unit string
	of         func(subject.Outcome) float64
	// null reports that the null scheduler has the figure as well.
	null bool
}

func figures() []figure {
	const attempt = "scheduling_attempt scheduled"
	return []figure{
		{"scheduling attempt, p50", "ms", func(o subject.Outcome) float64 { return report.Milliseconds(o.Histograms[attempt].Quantile(0.5)) }, false},
		{"scheduling attempt, p99", "ms", func(o subject.Outcome) float64 { return report.Milliseconds(o.Histograms[attempt].Quantile(0.99)) }, false},
		{"scheduling algorithm, mean", "ms", mean, false},
		{"scheduling cycle, p50", "ms", func(o subject.Outcome) float64 { return report.Milliseconds(report.Samples(o.Cycles).Median()) }, false},
		{"processor time for a pod", "ms", perPod, true},
		{"memory allocated for a pod", "MiB", func(o subject.Outcome) float64 { return float64(o.Allocated) / float64(max(o.Bound, 1)) / (1 << 20) }, true},
		{"connections opened to the API server", "", func(o subject.Outcome) float64 { return float64(o.Dialed) }, true},
		{"live heap afterwards", "MiB", func(o subject.Outcome) float64 { return float64(o.Live) / (1 << 20) }, true},
	}
}

// mean is the mean duration of the scheduling algorithm in ms.
func mean(o subject.Outcome) float64 {
	return report.Milliseconds(o.Histograms["scheduling_algorithm"].Mean())
}

// perPod is the processor time for a pod in ms.
func perPod(o subject.Outcome) float64 { return report.Milliseconds(o.PerPod()) }

// slowCycle is the p99 of scheduling cycles in ms.
func slowCycle(o subject.Outcome) float64 {
	return report.Milliseconds(report.Samples(o.Cycles).Quantile(0.99))
}

// score is the p99 of all Score plugins for all nodes of one pod in ms.
func score(o subject.Outcome) float64 {
	return report.Milliseconds(o.Histograms["framework_extension_point Score Success"].Quantile(0.99))
}

// shares returns the mean time of our plugin at every extension point, in the cycles that the
// scheduler samples.
func shares(o subject.Outcome) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(o.Histograms)) {
		if rest, is := strings.CutPrefix(name, "plugin_execution "); is && strings.Contains(rest, plugin.Name) {
			parts = append(parts, fmt.Sprintf("%s %.2f", strings.Fields(rest)[0], report.Milliseconds(o.Histograms[name].Mean())))
		}
	}
	return strings.Join(parts, ", ")
}
