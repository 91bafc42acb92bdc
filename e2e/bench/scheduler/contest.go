package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/subject"
)

// contest is one batch, scheduled by the variants in turn, each starting with the same cluster: once by the in-tree plugin, and
// then alternately by ours and by the null scheduler.
type contest struct {
	// name is the contest's name in rows.
	name  string
	level fleet.Level
	mix   fleet.Mix
}

// results are the outcomes of a contest, of ours and of the null scheduler one for each round.
type results map[subject.Variant][]subject.Outcome

// warmup is the number of pods before the measured ones: by then each scheduler has scheduled each kind of
// pod.
const warmup = 30

// shaped measures nodes with every shape.
func (b *bench) shaped(ctx context.Context) error {
	if b.nodes == 0 {
		return nil
	}
	return b.contests(ctx, fleet.Spec{Nodes: b.nodes}, []contest{
		{"no claims", fleet.Empty, fleet.Plain}, {"empty", fleet.Empty, fleet.Mixed},
		{"half full", fleet.Half, fleet.Mixed}, {"full", fleet.Full, fleet.Mixed},
	})
}

// whole measures many nodes, each with one slice.
func (b *bench) whole(ctx context.Context) error {
	if b.small == 0 {
		return nil
	}
	return b.contests(ctx, fleet.Spec{Nodes: b.small, Shapes: []gpu.Shape{gpu.Whole}}, []contest{{"whole GPUs, half full", fleet.Half, fleet.Whole}})
}

// contests runs contests on one cluster, in order of their levels.
func (b *bench) contests(ctx context.Context, s fleet.Spec, all []contest) error {
	plane, err := b.fresh(ctx)
	if err != nil {
		return err
	}
	defer plane.Stop()
	b.Doing("publishing %d nodes", s.Nodes)
	c, err := populate(ctx, plane, s)
	if err != nil {
		return fmt.Errorf("publish %d nodes: %w", s.Nodes, err)
	}
	level := fleet.Empty
	for _, contest := range all {
		if contest.level != level {
			level = contest.level
			b.Doing("filling the cluster: %s", level)
			if err := c.fill(ctx, level); err != nil {
				return fmt.Errorf("fill the cluster: %w", err)
			}
		}
		outcomes := results{}
		for _, v := range b.turns() {
			outcome, err := b.compete(ctx, c, contest, v)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", contest.name, v, err)
			}
			outcomes[v] = append(outcomes[v], outcome)
		}
		b.addRows(s.Nodes, contest, outcomes)
	}
	return nil
}

// turns are the variants in the order in which they schedule a batch.
func (b *bench) turns() []subject.Variant {
	return append([]subject.Variant{subject.InTree}, slices.Repeat([]subject.Variant{subject.Ours, subject.Null}, b.rounds)...)
}

// compete lets a variant schedule the batch, and removes everything again.
func (b *bench) compete(ctx context.Context, c *cluster, t contest, v subject.Variant) (subject.Outcome, error) {
	b.Doing("%d nodes, %s: %s", c.Nodes, t.name, v)
	batches := []fleet.Batch{{Name: "warm", Pods: min(warmup, b.pods), Mix: t.mix}, {Name: "measured", Pods: b.pods, Mix: t.mix}}
	outcome, err := b.race(ctx, c, subject.Spec{
		Variant: v, Kubeconfig: c.plane.Kubeconfig, Fleet: c.Spec, Profile: b.profile(fmt.Sprintf("%d %s %s", c.Nodes, t.name, v)),
	}, batches)
	if err != nil {
		return outcome, err
	}
	b.Doing("%d nodes, %s: %s: %d of %d pods in %v", c.Nodes, t.name, v, outcome.Bound, outcome.Pods, outcome.Took.Round(time.Millisecond))
	for _, batch := range batches {
		if err := c.remove(ctx, batch); err != nil {
			return outcome, fmt.Errorf("remove pods: %w", err)
		}
	}
	return outcome, nil
}

// race lets a subject schedule the batches and returns the outcome of the last. By then the subject has
// ended and writes nothing more.
func (b *bench) race(ctx context.Context, c *cluster, s subject.Spec, batches []fleet.Batch) (outcome subject.Outcome, err error) {
	p, err := subject.Start(ctx, s, b.folder.Disk)
	if err != nil {
		return outcome, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	for _, batch := range batches {
		if err := c.submit(ctx, batch); err != nil {
			return outcome, fmt.Errorf("create pods: %w", err)
		}
		if outcome, err = p.Schedule(batch, b.limit); err != nil {
			return outcome, err
		}
	}
	return outcome, nil
}

// profile is the path of profiles of that name, empty when none are requested.
func (b *bench) profile(name string) string {
	if b.profiles == "" {
		return ""
	}
	return filepath.Join(b.profiles, strings.NewReplacer(" ", "-", ",", "").Replace(name))
}
