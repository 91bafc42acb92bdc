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

// Inventory provides the state of the node.
type Inventory interface {
	// Watch returns the node, whether it has been read, and a channel that is closed when either changes.
	Watch() (node gpu.Node, known bool, outdated <-chan struct{})
}

// Config has the dependencies of a Publisher.
type Config struct {
	// Node is the name of the Kubernetes node, which owns the ResourceSlices.
	Node      string
	Client    kubernetes.Interface
	Inventory Inventory
	Options   wire.Options
	// Accepted, if set, is called with the time from a change of the taints, as the inventory reported it, until the API
	// server accepted the ResourceSlices with the change. It must not block.
	Accepted func(time.Duration)
}

// syncDelay is the delay between the last change of the ResourceSlices on the API server and their comparison with the
// wanted state. The controller's default of 30 s would leave a node without ResourceSlices that long after each restart
// of kubelet.
const syncDelay = time.Second

// Publisher publishes the node while Run runs. Two agents of one node must not run at the same time; after Run returns,
// nothing is written.
type Publisher struct {
	config   Config
	newQueue func() workqueue.TypedRateLimitingInterface[string]
	// mu orders the submissions to the controller and the controller's reads of them. It guards state.
	mu    sync.Mutex
	state state
}

// state is the progress of the API server towards the submitted pools.
type state struct {
	// running is true while Run runs.
	running bool
	// submitted counts the pools that were submitted to the controller; accepted is the number of the last one that the
	// API server has completely.
	submitted, accepted int
	// progressed is when the API server last accepted a pool completely, or when a pool was submitted after it had
	// accepted all.
	progressed time.Time
	// unencodable is the reason why the node cannot be encoded; unwritten is the error of the last write. dropped means
	// that the API server keeps only a part of the written fields; the controller reports that once and does not retry.
	unencodable, unwritten, dropped error
	// taintChanges are the changes of taints that the API server has not accepted yet, in order.
	taintChanges []taintChange
}

// taintChange is a change of taints: the number of the pool that has it, and the time of the change.
type taintChange struct {
	submitted int
	since     time.Time
}

// errPending means that the API server has not accepted the submitted pool yet.
var errPending = errors.New("ResourceSlices are not published yet")

// New returns a publisher that has not been started.
func New(c Config) *Publisher { return &Publisher{config: c, newQueue: newQueue} }

// Run publishes the node, once it has been read, until ctx ends; the ResourceSlices stay. It may be called again after
// it returns. Errors of encoding and writing are logged, and retried or superseded by the next change: Run returns an
// error only if it cannot start.
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

// encode returns the resources to publish; nil if nothing can be published now. The published resources stay then.
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

// equalTaints reports whether the devices of a and b have the same taints.
func equalTaints(a, b *resourceslice.DriverResources) bool {
	return apiequality.Semantic.DeepEqual(taints(a), taints(b))
}

// taints returns the taints of every tainted device, by device name.
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

// publish submits the resources to the controller, which is started with the first of them: without resources it would
// delete the ResourceSlices of an earlier agent.
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
		return nil, fmt.Errorf("start the publication of node %s: %w", p.config.Node, err)
	}
	return controller, nil
}

// report records an error of the controller, which retries by itself.
func (p *Publisher) report(ctx context.Context, err error, doing string) {
	if ctx.Err() != nil {
		return
	}
	klog.FromContext(ctx).Error(err, "Node not published, retrying", "node", p.config.Node, "op", doing)
	p.setWriteError(err)
}
