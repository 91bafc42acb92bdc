package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/subject"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// The goals of pods without claims in a cluster with the worst claims.
const (
	// slowest is in ms.
	slowest = 1000
	// mostOfAlone is the goal as a multiple of the time without the worst claims.
	mostOfAlone = 3
)

// knownClasses gets DeviceClasses by name.
type knownClasses map[string]*resourceapi.DeviceClass

// Get returns the class.
func (c knownClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("no DeviceClass %s", name)
}

// worstSteps counts the steps of the worst claims on an empty node.
func (b *bench) worstSteps(context.Context) error {
	f, err := fleet.New(fleet.Spec{Nodes: 1})
	if err != nil {
		return err
	}
	list, err := fleet.Classes()
	if err != nil {
		return err
	}
	classes := knownClasses{}
	for _, class := range list {
		classes[class.Name] = class
	}
	slices, err := f.Slices(0)
	if err != nil {
		return err
	}
	x := index.New(index.Config{Drivers: []string{fleet.Driver}})
	for i := range slices {
		x.SetSlice(&slices[i])
	}
	n, ok := x.Node(f.Name(0))
	if !ok || n.DelegateReason != nil {
		return fmt.Errorf("read the published devices of %s: %w", f.Name(0), n.DelegateReason)
	}
	reader, most, slowest := requirements.NewReader(classes, x), 0, time.Duration(0)
	for _, unit := range (fleet.Batch{Name: "worst", Pods: min(b.hostile, 10), Mix: fleet.Worst}).Units() {
		req, err := reader.Read([]*resourceapi.ResourceClaim{unit.Claim}, nil) //nolint:contextcheck // selectors are evaluated in memory
		if err != nil {
			return err
		}
		demands, err := req.OnNode(n, nil) //nolint:contextcheck // selectors are evaluated in memory
		if err != nil {
			return err
		}
		budget, began := fit.NewBudget(fit.NodeSteps), time.Now()
		fit.Choose(&n.Fit, demands, budget)
		most, slowest = max(most, budget.Spent()), max(slowest, time.Since(began))
	}
	b.Add(
		report.Figure("worst claim on a node: steps of the search", float64(most), "steps").AtMost(fit.NodeSteps*1.01),
		report.Figure("worst claim on a node: time of the search", report.Milliseconds(slowest), "ms").AtMost(5),
	)
	return nil
}

// worstQueued measures pods without claims before the worst claims exist, at the moment when all of these are in the
// queue, and while they are retried.
func (b *bench) worstQueued(ctx context.Context) (err error) {
	plane, err := b.fresh(ctx)
	if err != nil {
		return err
	}
	defer plane.Stop()
	c, err := populate(ctx, plane, fleet.Spec{Nodes: b.nodes})
	if err != nil {
		return fmt.Errorf("publish %d nodes: %w", b.nodes, err)
	}
	p, err := subject.Start(ctx, subject.Spec{Variant: subject.Ours, Kubeconfig: plane.Kubeconfig, Fleet: c.Spec, Profile: b.profile("hostile")}, b.folder.Disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	plain := func(name string, pods int) (subject.Outcome, error) {
		batch := fleet.Batch{Name: name, Pods: pods, Mix: fleet.Plain}
		b.Doing("%d pods without claims: %s", pods, name)
		if err := c.submit(ctx, batch); err != nil {
			return subject.Outcome{}, fmt.Errorf("create pods: %w", err)
		}
		return p.Schedule(batch, b.limit)
	}
	var outcomes []subject.Outcome
	for _, batch := range []struct {
		name        string
		pods, worst int
	}{{"warm", b.pods, 0}, {"alone", b.pods, 0}, {"queued", 1, b.hostile}, {"retried", b.pods, 0}} {
		if batch.worst > 0 {
			if err := c.submit(ctx, fleet.Batch{Name: "worst", Pods: batch.worst, Mix: fleet.Worst}); err != nil {
				return fmt.Errorf("create the worst claims: %w", err)
			}
		}
		outcome, err := plain(batch.name, batch.pods)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, outcome)
	}
	alone, queued, retried := outcomes[1], outcomes[2], outcomes[3]
	b.Add(
		report.Figure(fmt.Sprintf("a pod behind %d worst claims in the queue: time until it is bound", b.hostile), report.Milliseconds(queued.Took), "ms").AtMost(slowest),
		report.Figure(fmt.Sprintf("%d pods while the worst claims are retried: time until all are bound", b.pods), report.Milliseconds(retried.Took), "ms").
			AtMost(slowest).Peer("without the worst claims", report.Milliseconds(alone.Took)),
		report.Figure("the same, in proportion to the time without them", retried.Took.Seconds()/alone.Took.Seconds(), "times").AtMost(mostOfAlone),
	)
	for _, o := range outcomes {
		cycles := report.Samples(o.Cycles)
		b.Note("%d scheduling cycles, p50 %.1f ms, p99 %.1f ms; the plugin's extension points on average in ms: %s", len(o.Cycles),
			report.Milliseconds(cycles.Median()), report.Milliseconds(cycles.Quantile(0.99)), shares(o))
		if o.Bound < o.Pods {
			b.Note("%d of %d pods were bound in %v", o.Bound, o.Pods, b.limit)
		}
	}
	return nil
}
