package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/subject"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// The fleets without API server, half full.
const (
	few, many = 500, 5000
	// mostGrowth is the goal for the growth of a pod's cost in the large one.
	mostGrowth = 1.3
	// inTreePods is the number of pods for the in-tree plugin there: it needs a second for one.
	inTreePods = 30
)

// scale measures schedulers with the whole cluster in their memory.
func (b *bench) scale(ctx context.Context) error {
	if b.alone == 0 {
		return nil
	}
	all := map[subject.Variant]map[int]subject.Outcome{subject.Ours: {}, subject.InTree: {}}
	for v, pods := range map[subject.Variant]int{subject.Ours: b.alone, subject.InTree: min(inTreePods, b.alone)} {
		for _, nodes := range []int{few, many} {
			outcome, err := b.inMemory(ctx, v, nodes, pods)
			if err != nil {
				return fmt.Errorf("%d nodes in memory, %s: %w", nodes, v, err)
			}
			all[v][nodes] = outcome
		}
	}
	ours, inTree := all[subject.Ours], all[subject.InTree]
	growth := func(of map[int]subject.Outcome) float64 {
		return float64(of[many].PerPod()) / float64(of[few].PerPod())
	}
	for _, nodes := range []int{few, many} {
		where := fmt.Sprintf("%d nodes in memory, half full: ", nodes)
		b.Add(
			report.Figure(where+"processor time for a pod", perPod(ours[nodes]), "ms").Peer("in-tree", perPod(inTree[nodes])),
			report.Figure(where+"scheduling cycle, p50", report.Milliseconds(report.Samples(ours[nodes].Cycles).Median()), "ms").
				Peer("in-tree", report.Milliseconds(report.Samples(inTree[nodes].Cycles).Median())),
			report.Figure(where+"scheduling cycle, p99", slowCycle(ours[nodes]), "ms").Peer("in-tree", slowCycle(inTree[nodes])),
			report.Figure(where+"Score of all plugins, p99", score(ours[nodes]), "ms").Peer("in-tree", score(inTree[nodes])),
			report.Figure(fmt.Sprintf("%sScore of our plugin on all nodes of a pod, p99 of %d pods", where, len(ours[nodes].Scores)),
				report.Milliseconds(report.Samples(ours[nodes].Scores).Quantile(0.99)), "ms").AtMost(slowestScore),
			report.Figure(where+"live heap of the scheduler", float64(ours[nodes].Live)/(1<<20), "MiB").Peer("in-tree", float64(inTree[nodes].Live)/(1<<20)),
		)
	}
	b.Add(report.Figure(fmt.Sprintf("processor time for a pod at %d nodes, in proportion to %d", many, few), growth(ours), "times").AtMost(mostGrowth).Peer("in-tree", growth(inTree)))
	size, err := indexed()
	if err != nil {
		return err
	}
	b.Add(report.Figure("memory of the index for a node of 8 GPUs, half full", size, "KiB"))
	return nil
}

// inMemory lets a variant schedule pods in a separate cluster.
func (b *bench) inMemory(ctx context.Context, v subject.Variant, nodes, pods int) (_ subject.Outcome, err error) {
	b.Doing("%d nodes in memory: %s", nodes, v)
	p, err := subject.Start(ctx, subject.Spec{
		Variant: v, Fleet: fleet.Spec{Nodes: nodes}, Level: fleet.Half, Profile: b.profile(fmt.Sprintf("memory %d %s", nodes, v)),
	}, b.folder.Disk)
	if err != nil {
		return subject.Outcome{}, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if _, err := p.Schedule(fleet.Batch{Name: "warm", Pods: min(warmup, pods), Mix: fleet.Mixed}, b.limit); err != nil {
		return subject.Outcome{}, err
	}
	return p.Schedule(fleet.Batch{Name: "measured", Pods: pods, Mix: fleet.Mixed}, b.limit)
}

// indexed returns the memory of the index for a node, in addition to the slices and claims that
// every scheduler keeps, in KiB.
func indexed() (float64, error) {
	f, err := fleet.New(fleet.Spec{Nodes: few})
	if err != nil {
		return 0, err
	}
	content, err := subject.Content(f, fleet.Half)
	if err != nil {
		return 0, err
	}
	before := heap()
	x := index.New(index.Config{Drivers: []string{fleet.Driver}})
	for i := range content.Slices {
		x.SetSlice(&content.Slices[i])
	}
	for _, claim := range content.Claims {
		x.SetClaim(claim)
	}
	nodes, _ := x.Changed(0) // snapshots are made by the caller
	size := float64(heap()-before) / float64(len(nodes)) / 1024
	runtime.KeepAlive(content)
	runtime.KeepAlive(x)
	return size, nil
}

// heap is the size of the heap after a collection, in bytes.
func heap() int64 {
	var memory runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapAlloc)
}
