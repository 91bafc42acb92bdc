package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/subject"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// The goals.
const (
	// leastOfNull is the goal as a part of the null scheduler's throughput.
	leastOfNull = 0.9
	// mostOfInTree is the goal as a part of the in-tree plugin's work.
	mostOfInTree = 0.2
	// slowestCycle and slowestScore are in ms.
	slowestCycle, slowestScore = 25, 5
)

// addRows adds the rows of a contest.
func (b *bench) addRows(where string, t contest, all results) {
	ours, inTree, null := all[subject.Ours], all[subject.InTree], all[subject.Null]
	b.Add(
		more(report.Figure(where+": pods bound in a second", ours.Rate(), "1/s").Peer("in-tree", inTree.Rate()).Peer("null", null.Rate())),
		report.Figure(where+": throughput, in proportion to the null scheduler", ours.Rate()/null.Rate(), "times").Peer("in-tree", inTree.Rate()/null.Rate()).AtLeast(leastOfNull),
	)
	for _, f := range figures() {
		row := report.Figure(where+": "+f.name, f.of(ours), f.unit).Peer("in-tree", f.of(inTree))
		if f.null {
			row = row.Peer("null", f.of(null))
		}
		b.Add(row)
	}
	algorithm := report.Figure(where+": scheduling algorithm, mean, in proportion to in-tree", mean(ours)/mean(inTree), "times")
	cpu := report.Figure(where+": processor time for a pod, in proportion to in-tree", float64(ours.PerPod())/float64(inTree.PerPod()), "times")
	cycle := report.Figure(where+": scheduling cycle, p99", report.Milliseconds(report.Samples(ours.Cycles).Quantile(0.99)), "ms").
		Peer("in-tree", report.Milliseconds(report.Samples(inTree.Cycles).Quantile(0.99)))
	if t.mix != fleet.Plain {
		algorithm, cpu, cycle = algorithm.AtMost(mostOfInTree), cpu.AtMost(mostOfInTree), cycle.AtMost(slowestCycle)
		b.Add(report.Figure(where+": Score of all plugins, p99", report.Milliseconds(score(ours)), "ms").AtMost(slowestScore).Peer("in-tree", report.Milliseconds(score(inTree))))
	}
	b.Add(algorithm, cpu, cycle)
	for _, v := range slices.Sorted(maps.Keys(all)) {
		if o := all[v]; o.Bound < o.Pods {
			b.Note("%s: %s bound %d of %d pods in %v", where, v, o.Bound, o.Pods, b.limit)
		}
	}
	b.Note("%s: our plugin's share, on average in ms: %s", where, shares(ours))
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
		{"processor time for a pod", "ms", func(o subject.Outcome) float64 { return report.Milliseconds(o.PerPod()) }, true},
		{"memory allocated for a pod", "MiB", func(o subject.Outcome) float64 { return float64(o.Allocated) / float64(max(o.Bound, 1)) / (1 << 20) }, true},
		{"live heap afterwards", "MiB", func(o subject.Outcome) float64 { return float64(o.Live) / (1 << 20) }, true},
	}
}

// mean is the mean duration of the scheduling algorithm in ms.
func mean(o subject.Outcome) float64 {
	return report.Milliseconds(o.Histograms["scheduling_algorithm"].Mean())
}

// score is the p99 of all Score plugins for all nodes of one pod.
func score(o subject.Outcome) time.Duration {
	return o.Histograms["framework_extension_point Score Success"].Quantile(0.99)
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
