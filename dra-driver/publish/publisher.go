package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// Inventory shows the node.
type Inventory interface {
	// Watch returns the node, whether it is known yet, and a channel that is closed when either changes.
	Watch() (node gpu.Node, known bool, outdated <-chan struct{})
}

// Config is what a Publisher works with.
type Config struct {
	// Node is the name of the Kubernetes node, which owns the slices.
	Node      string
	Client    kubernetes.Interface
	Inventory Inventory
	Options   wire.Options
	// Accepted, if it is set, is told how long it took from a change of the faults of the GPUs, as the inventory showed it, until the API
	// server had the slices that tell of it.
	Accepted func(time.Duration)
}

// syncDelay is how long after the last change on the API server the slices there are compared with
// what they should be. The default of half a minute would leave a node without slices that long after
// each restart of kubelet.
const syncDelay = time.Second

// Publisher publishes the node while Run runs. Several agents of one node must not run at the same
// time; when Run returns, nothing is written any more.
type Publisher struct {
	config   Config
	newQueue func() workqueue.TypedRateLimitingInterface[string]
	// mu orders what is asked of the controller and what the controller takes up.
	mu    sync.Mutex
	state state
}

// state is how far the API server is with what was asked.
type state struct {
	// running is true while Run runs.
	running bool
	// submitted counts the pools that the controller was given, accepted is the last of them that the API
	// server has whole.
	submitted, accepted int
	// progressed is when the API server last had one whole, or when something was asked after it had all.
	progressed time.Time
	// unencodable is why the node cannot be published as it is, unwritten why the last attempt to
	// write failed. dropped says that the API server keeps only a part of what it is given; the
	// controller reports that once and then contents itself.
	unencodable, unwritten, dropped error
	// taintChanges are the changes of faults that the API server has not accepted yet.
	taintChanges []taintChange
}

// taintChange is a change of the faults: what was asked with it, and since when.
type taintChange struct {
	submitted int
	since     time.Time
}

// errPending is the state between asking and accepting.
var errPending = errors.New("ResourceSlices are not published yet")

// New returns a publisher that has not started.
func New(c Config) *Publisher { return &Publisher{config: c, newQueue: newQueue} }

// Run publishes the node, once it is known, until ctx ends; the slices stay. It may run again later.
// What cannot be encoded or written is logged and repeated or replaced by what comes next: Run returns
// an error only when it cannot start.
func (p *Publisher) Run(ctx context.Context) error {
	p.startRun()
	defer p.endRun()
	var controller *resourceslice.Controller
	defer func() { controller.Stop() }()
	var published *resourceslice.DriverResources
	for {
		node, known, outdated := p.config.Inventory.Watch()
		next := p.encode(ctx, node, known)
		if next != nil && !apiequality.Semantic.DeepEqual(next, published) {
			if published != nil && !equalTaints(published, next) {
				p.recordTaintChange(time.Now())
			}
			published = next
			var err error
			if controller, err = p.publish(ctx, controller, next); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-outdated:
		}
	}
}

// encode returns the resources to publish; nil while nothing should change.
func (p *Publisher) encode(ctx context.Context, node gpu.Node, known bool) *resourceslice.DriverResources {
	if !known {
		return nil
	}
	pool, err := wire.Encode(node, p.config.Options)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Node not published, it cannot be encoded", "node", p.config.Node)
	}
	p.setEncodeError(err)
	if err != nil {
		return nil
	}
	slices := make([]resourceslice.Slice, len(pool.Slices))
	for i, s := range pool.Slices {
		slices[i] = resourceslice.Slice{Devices: s.Devices, SharedCounters: s.SharedCounters}
	}
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool.Name: {Slices: slices}}}
}

// equalTaints reports whether the devices of both have the same taints.
func equalTaints(a, b *resourceslice.DriverResources) bool {
	return apiequality.Semantic.DeepEqual(taints(a), taints(b))
}

// taints returns the taints of every device that has any, by name.
func taints(r *resourceslice.DriverResources) map[string][]resourceapi.DeviceTaint {
	found := map[string][]resourceapi.DeviceTaint{}
	for _, pool := range r.Pools {
		for _, slice := range pool.Slices {
			for _, device := range slice.Devices {
				if len(device.Taints) > 0 {
					found[device.Name] = device.Taints
				}
			}
		}
	}
	return found
}

// publish gives the resources to the controller, which is started with the first of them: without any
// it would remove what an earlier agent published.
func (p *Publisher) publish(ctx context.Context, controller *resourceslice.Controller, next *resourceslice.DriverResources) (*resourceslice.Controller, error) {
	if controller != nil {
		p.submit(func() { controller.Update(next) })
		return controller, nil
	}
	p.submit(func() {})
	delay := syncDelay
	controller, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName:   p.config.Options.Driver,
		KubeClient:   p.config.Client,
		Owner:        &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: p.config.Node},
		Resources:    next,
		Queue:        &queue{TypedRateLimitingInterface: p.newQueue(), publisher: p},
		SyncDelay:    &delay,
		ErrorHandler: p.report,
	})
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("start to publish node %s: %w", p.config.Node, err)
	}
	return controller, nil
}

// report is told by the controller what it could not do; it is going to try again.
func (p *Publisher) report(ctx context.Context, err error, doing string) {
	if ctx.Err() != nil {
		return
	}
	klog.FromContext(ctx).Error(err, "Node not published, retrying", "node", p.config.Node, "op", doing)
	p.setWriteError(err)
}
