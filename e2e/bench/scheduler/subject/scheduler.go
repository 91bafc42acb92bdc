package subject

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// contender schedules pods while its gate is open.
type contender struct {
	gate *gate
	// bound counts the pods that it has bound.
	bound *tally
	// waiting is the number of pods that it could schedule at once, with its caches up to date.
	waiting func() int
	// run schedules until ctx ends.
	run func(ctx context.Context)
	// supply creates the pods of a batch where the bench does not.
	supply func(fleet.Batch)
	// read is how long it took to read the whole cluster.
	read time.Duration
	// dialed counts the connections to the API server.
	dialed *atomic.Int64
	// scores are the times of our plugin's Score.
	scores *scoreTimes
}

// notSupplied leaves creating the pods to the bench.
func notSupplied(fleet.Batch) {}

// recorder returns a broadcaster that writes events to the API server until ctx ends.
func recorder(ctx context.Context, client kubernetes.Interface) (events.EventBroadcaster, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("record events: %w", err)
	}
	return broadcaster, nil
}

// newScheduler returns kube-scheduler with the variant's profile, its caches filled.
func newScheduler(ctx context.Context, spec Spec, client kubernetes.Interface) (*contender, error) {
	configured, err := profiles(spec)
	if err != nil {
		return nil, err
	}
	broadcaster, err := recorder(ctx, client)
	if err != nil {
		return nil, err
	}
	factory, scores := scheduler.NewInformerFactory(client, 0, nil), &scoreTimes{}
	s, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(configured...),
		scheduler.WithFrameworkOutOfTreeRegistry(runtime.Registry{plugin.Name: scores.newPlugin}))
	if err != nil {
		return nil, fmt.Errorf("make a scheduler: %w", err)
	}
	g := newGate()
	g.next, s.NextEntity = s.NextEntity, g.Next
	c := &contender{gate: g, run: s.Run, supply: notSupplied, scores: scores, waiting: func() int {
		return len(s.SchedulingQueue.PodsInActiveQ()) + g.Held()
	}}
	stop, err := profiled(spec.Profile, "read")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := c.sync(ctx, factory); err != nil {
		return nil, err
	}
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return nil, err
	}
	if spec.Variant == Ours {
		if err := waitIndexed(ctx, spec.Fleet.Nodes); err != nil {
			return nil, err
		}
	}
	c.read = time.Since(began)
	return c, stop()
}

// waitIndexed waits until the index of our plugin has read the devices of so many nodes.
func waitIndexed(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	for {
		read, err := indexed()
		if err != nil || read >= nodes {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("read %d of %d nodes: %w", read, nodes, context.Cause(ctx))
		case <-time.After(look):
		}
	}
}

// sync starts the informers and waits until their caches are filled.
func (c *contender) sync(ctx context.Context, factory informers.SharedInformerFactory) error {
	var err error
	if c.bound, err = watch(factory.Core().V1().Pods().Informer()); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("read all %v: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}
