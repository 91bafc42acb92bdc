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

// maxPendingAge is how long a change may be on its way to the API server: as long as a failure is waited for
// at most before it is tried again.
const maxPendingAge = maxRetryDelay

// Accepted returns nil when the API server has the node's slices, and otherwise why not: the agent is
// not ready. While Run runs, that means what the inventory shows, but for a change that was not refused
// and has just been given: an agent that tells of a fault is not away. Nothing is asked of the API
// server then. Otherwise another agent publishes, and it is enough that the pool is whole; each call
// then lists the node's slices.
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

// checkPublished returns nil when the API server has every slice of the pool's last generation.
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

// complete reports whether all slices of the pool's highest generation are there.
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

// submit gives the controller something new; what the controller takes up from then on is that.
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

// recordTaintChange notes that what is asked next tells of other faults than before.
func (p *Publisher) recordTaintChange(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.taintChanges = append(p.state.taintChanges, taintChange{submitted: p.state.submitted + 1, since: since})
}

// observeAccepted says how long the changes of faults took that the API server has accepted.
func (p *Publisher) observeAccepted(taken int) {
	for len(p.state.taintChanges) > 0 && p.state.taintChanges[0].submitted <= taken {
		if p.config.Accepted != nil {
			p.config.Accepted(time.Since(p.state.taintChanges[0].since))
		}
		p.state.taintChanges = p.state.taintChanges[1:]
	}
}

// firstRetry and lastRetry are after what times a failure is tried again, at first and at most: by default
// that grows to a quarter of an hour.
const (
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 5 * time.Second
)

func newQueue() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay))
}

// queue watches the controller work: it takes a pool up with Get, and with Forget says that it is
// done with it. What it could not write it reports in between.
type queue struct {
	workqueue.TypedRateLimitingInterface[string]
	publisher *Publisher
	// taken is what was asked when the pool at work was taken up; only the controller's one worker
	// touches it.
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
