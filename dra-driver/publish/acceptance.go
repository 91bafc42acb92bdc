package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tessera-gpu/tessera/api/wire"
)

// maxPendingAge is how long a submitted pool may be pending before the agent is not ready: the longest delay between two
// retries.
const maxPendingAge = maxRetryDelay

// Accepted returns nil if the API server has the node's ResourceSlices, and otherwise the reason; the agent is not ready
// then. While Run runs, the ResourceSlices must match the inventory, except for a change that has been pending for less
// than maxPendingAge without an error, so that an agent stays ready while it publishes a fault. No request is made then.
// While Run does not run, another agent publishes, and the pool must only be complete; each call lists the node's
// ResourceSlices.
func (p *Publisher) Accepted(ctx context.Context) error {
	p.mu.Lock()
	s := p.state
	p.mu.Unlock()
	switch {
	case !s.running:
		return p.checkPublished(ctx)
	case s.unencodable != nil:
		return s.unencodable
	case s.dropped != nil:
		return s.dropped
	case s.unwritten != nil:
		return s.unwritten
	case s.accepted == 0:
		return errPending
	case s.accepted != s.submitted && time.Since(s.progressed) >= maxPendingAge:
		return fmt.Errorf("%w: a change is pending for %v", errPending, time.Since(s.progressed).Round(time.Second))
	}
	return nil
}

// checkPublished returns nil if the API server has every ResourceSlice of the pool's latest generation.
func (p *Publisher) checkPublished(ctx context.Context) error {
	selector := fields.Set{
		resourceapi.ResourceSliceSelectorDriver:   p.config.Options.Driver,
		resourceapi.ResourceSliceSelectorNodeName: p.config.Node,
	}
	list, err := p.config.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return fmt.Errorf("list the node's ResourceSlices: %w", err)
	}
	if !complete(list.Items, wire.PoolName(p.config.Node, p.config.Options.Driver)) {
		return errPending
	}
	return nil
}

// complete reports whether all slices of the pool's highest generation are present.
func complete(slices []resourceapi.ResourceSlice, pool string) bool {
	var last resourceapi.ResourcePool
	var count int64
	for _, s := range slices {
		switch {
		case s.Spec.Pool.Name != pool || s.Spec.Pool.Generation < last.Generation:
		case s.Spec.Pool.Generation > last.Generation || count == 0:
			last, count = s.Spec.Pool, 1
		default:
			count++
		}
	}
	return count > 0 && count == last.ResourceSliceCount
}

func (p *Publisher) startRun() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state{running: true}
}

func (p *Publisher) endRun() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state{}
}

func (p *Publisher) setEncodeError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.unencodable = err
}

func (p *Publisher) setWriteError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.unwritten = err
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) {
		p.state.dropped = err
	}
}

// submit submits a new pool to the controller with give; the controller's next Get takes that pool.
func (p *Publisher) submit(give func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.accepted == p.state.submitted {
		p.state.progressed = time.Now()
	}
	p.state.submitted++
	p.state.dropped = nil
	give()
}

// recordTaintChange records that the taints of the next submitted pool differ from the last one's.
func (p *Publisher) recordTaintChange(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.taintChanges = append(p.state.taintChanges, taintChange{submitted: p.state.submitted + 1, since: since})
}

// observeAccepted calls Config.Accepted for the changes of taints that the API server has accepted, up to the pool with
// number taken. The caller holds mu.
func (p *Publisher) observeAccepted(taken int) {
	for len(p.state.taintChanges) > 0 && p.state.taintChanges[0].submitted <= taken {
		if p.config.Accepted != nil {
			p.config.Accepted(time.Since(p.state.taintChanges[0].since))
		}
		p.state.taintChanges = p.state.taintChanges[1:]
	}
}

// minRetryDelay and maxRetryDelay bound the backoff of failed writes. By default it grows to a quarter of an hour.
const (
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 5 * time.Second
)

func newQueue() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay))
}

// queue observes the controller's progress: Get starts the write of a pool and Forget ends it successfully. Errors are
// reported in between (Publisher.report).
type queue struct {
	workqueue.TypedRateLimitingInterface[string]
	publisher *Publisher
	// taken is the number of the pool that was current at the last Get; only the controller's single worker accesses it.
	taken int
}

func (q *queue) Get() (string, bool) {
	pool, shutdown := q.TypedRateLimitingInterface.Get()
	q.publisher.mu.Lock()
	defer q.publisher.mu.Unlock()
	q.taken = q.publisher.state.submitted
	q.publisher.state.unwritten = nil
	return pool, shutdown
}

func (q *queue) Forget(pool string) {
	q.TypedRateLimitingInterface.Forget(pool)
	q.publisher.mu.Lock()
	defer q.publisher.mu.Unlock()
	q.publisher.state.accepted, q.publisher.state.progressed = q.taken, time.Now()
	q.publisher.observeAccepted(q.taken)
}
