// Command scheduler measures the scheduler plugin against the released kube-scheduler and against the
// null scheduler, which makes no decisions: pods per second, the time of scheduling cycles, processor
// time and memory, each scheduler in a separate process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/subject"
	"github.com/tessera-gpu/tessera/e2e/bench/scratch"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

func main() {
	isSubject, err := subject.Requested(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if isSubject {
		return
	}
	b := &bench{}
	flag.IntVar(&b.nodes, "nodes", 500, "nodes of 8 GPUs with every shape, on a real API server; 0 leaves them out")
	flag.IntVar(&b.pods, "pods", 300, "pods of a batch")
	flag.IntVar(&b.rounds, "rounds", 3, "how often our scheduler and the null scheduler alternate on a real API server; the figures are medians")
	flag.IntVar(&b.small, "whole-nodes", 5000, "nodes with one slice of whole GPUs, on a real API server; 0 leaves them out")
	flag.IntVar(&b.alone, "memory-pods", 2000, "pods that are scheduled without an API server; 0 leaves that out")
	flag.IntVar(&b.heapNodes, "heap-nodes", 200, "nodes of 8 GPUs with every shape and a DeviceTaintRule, on a real API server, for the heap of a node; 0 leaves them out")
	flag.DurationVar(&b.limit, "limit", 45*time.Second, "how long a batch may take; what is not scheduled by then is left")
	flag.StringVar(&b.profiles, "profiles", "", "write a profile of the processor for the first read and for every batch, and profiles of the heap, into this folder")
	flag.StringVar(&b.cases, "upstream", "", "the file with the outcomes of kubernetes' own cases, written by e2e/tests/upstream")
	flag.IntVar(&b.hostile, "hostile", 0, "measure pods without claims in a cluster with so many of the worst claims, and nothing else")
	flag.Parse()
	if b.hostile > 0 {
		os.Exit(report.Main("hostile", b.measure))
	}
	os.Exit(report.Main("scheduler", b.measure))
}

// bench is one run.
type bench struct {
	nodes, pods, small, alone  int
	heapNodes, hostile, rounds int
	limit                      time.Duration
	profiles, cases            string
	*report.Report
	folder   scratch.Folder
	programs binaries.Folders
	planes   int
}

func (b *bench) measure(ctx context.Context, r *report.Report) (err error) {
	b.Report = r
	if b.folder, err = scratch.New(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.folder.Close()) }()
	if b.programs, err = harness.ClusterPrograms(ctx); err != nil {
		return err
	}
	parts := []func(context.Context) error{b.scale, b.protected, b.shaped, b.whole, b.upstream}
	if b.hostile > 0 {
		parts = []func(context.Context) error{b.worstSteps, b.worstQueued}
	}
	for _, part := range parts {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fresh starts a separate API server, which the caller stops.
func (b *bench) fresh(ctx context.Context) (*harness.Plane, error) {
	b.planes++
	dir, err := b.folder.Sub(fmt.Sprint("plane-", b.planes))
	if err != nil {
		return nil, err
	}
	b.Doing("starting an API server")
	return harness.StartPlane(ctx, dir, b.programs)
}
