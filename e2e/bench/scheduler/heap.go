package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/subject"
)

const (
	// mostHeap is the goal for the live heap of the scheduler per node, in KiB.
	mostHeap = 450
	// heapLimit is how long a scheduler has to schedule the only pod, after which its caches are filled. The in-tree
	// plugin never does, because all devices are tainted.
	heapLimit = 10 * time.Second
)

// protected measures the live heap per node in the installer's default mode, in which a DeviceTaintRule taints all
// devices: the heap with the nodes less the heap without nodes.
func (b *bench) protected(ctx context.Context) error {
	if b.heapNodes == 0 {
		return nil
	}
	live := map[subject.Variant]map[int]uint64{subject.Ours: {}, subject.InTree: {}}
	for _, nodes := range []int{0, b.heapNodes} {
		if err := b.protectedWith(ctx, nodes, live); err != nil {
			return fmt.Errorf("%d nodes with a DeviceTaintRule: %w", nodes, err)
		}
	}
	perNode := func(v subject.Variant) float64 {
		return (float64(live[v][b.heapNodes]) - float64(live[v][0])) / float64(b.heapNodes) / 1024
	}
	b.Add(report.Figure(fmt.Sprintf("%d nodes, all devices tainted by a DeviceTaintRule: live heap of a node", b.heapNodes), perNode(subject.Ours), "KiB").
		AtMost(mostHeap).Peer("in-tree", perNode(subject.InTree)))
	return nil
}

// protectedWith adds the live heap of each variant with that many nodes.
func (b *bench) protectedWith(ctx context.Context, nodes int, live map[subject.Variant]map[int]uint64) error {
	plane, err := b.fresh(ctx)
	if err != nil {
		return err
	}
	defer plane.Stop()
	b.Doing("publishing %d nodes", nodes)
	c, err := populate(ctx, plane, fleet.Spec{Nodes: nodes})
	if err != nil {
		return err
	}
	driver := fleet.Driver
	rule := &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "scheduler." + driver},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &driver},
			Taint:          resourceapi.DeviceTaint{Key: v1alpha1.TaintScheduler, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}
	if _, err := c.client.ResourceV1().DeviceTaintRules().Create(ctx, rule, metav1.CreateOptions{}); err != nil {
		return err
	}
	for v := range live {
		outcome, err := b.settled(ctx, c, v)
		if err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		live[v][nodes] = outcome.Live
		b.Doing("%d nodes with a DeviceTaintRule: %s: %d MiB", nodes, v, outcome.Live>>20)
	}
	return nil
}

// settled returns the outcome of one pod, which needs a device, and removes the pod.
func (b *bench) settled(ctx context.Context, c *cluster, v subject.Variant) (outcome subject.Outcome, err error) {
	s := subject.Spec{Variant: v, Kubeconfig: c.plane.Kubeconfig, Fleet: c.Spec, Additional: true, HeapProfile: b.profile(fmt.Sprintf("heap %d %s", c.Nodes, v))}
	p, err := subject.Start(ctx, s, b.folder.Disk)
	if err != nil {
		return outcome, err
	}
	batch := fleet.Batch{Name: "heap", Pods: 1, Mix: fleet.Mixed}
	if err = c.submit(ctx, batch); err == nil {
		outcome, err = p.Schedule(batch, heapLimit)
	}
	if err = errors.Join(err, p.Stop()); err != nil {
		return outcome, err
	}
	return outcome, c.remove(ctx, batch)
}
