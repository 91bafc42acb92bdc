package plugin

import (
	"context"
	"runtime"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// delegation limits the time that the in-tree allocator takes on all nodes of an attempt, from the first node on. Every
// processor evaluates one node at a time, so that the nodes that are started have a chance to be finished.
type delegation struct {
	limit time.Duration
	slots chan struct{}

	mu                   sync.Mutex
	started, ended, last time.Time
}

func newDelegation(limit time.Duration) *delegation {
	return &delegation{limit: limit, slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// start waits until a node may be evaluated. It returns a context that ends with the time of the attempt, and a function that
// ends the evaluation and reports whether it had at least half of the time; false if the time is used up.
func (d *delegation) start(ctx context.Context) (context.Context, func() (most bool), bool) {
	d.mu.Lock()
	if d.started.IsZero() {
		d.started = time.Now()
		d.last = d.started.Add(d.limit)
	}
	d.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, d.last)
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		cancel()
		return nil, nil, false
	}
	began := time.Now()
	return ctx, func() bool {
		cancel()
		<-d.slots
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended = time.Now()
		return d.ended.Sub(began) >= d.limit/2
	}, true
}

// took returns the time from the first node to the last one.
func (d *delegation) took() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, d.ended.Sub(d.started))
}

// sweep is the nodes that the in-tree allocator has rejected for a pod, over several attempts if the time of one is not enough
// for all nodes. kube-scheduler starts an attempt at the node where the previous one stopped, but it counts a node that was
// not evaluated like one that was. So every attempt passes over the nodes that earlier ones evaluated.
type sweep struct {
	mu    sync.Mutex
	nodes map[string]sweptNode
}

// sweptNode is the result for a node at a revision of the index.
type sweptNode struct {
	revision   uint64
	tooComplex bool
}

// result returns the result of an earlier attempt for the node, unless the node has changed.
func (s *sweep) result(node string, revision uint64) (sweptNode, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	swept, ok := s.nodes[node]
	return swept, ok && swept.revision == revision
}

func (s *sweep) record(node string, swept sweptNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[node] = swept
}

// sweeps holds the sweeps of the pods that need several attempts. It is safe for concurrent use.
type sweeps struct{ byPod *lru.Cache }

// maxSweeps limits the number of sweeps. A pod whose sweep is dropped starts again.
const maxSweeps = 256

func newSweeps() sweeps { return sweeps{lru.New(maxSweeps)} }

// continued returns the sweep that an earlier attempt of the pod has left, or a new one.
func (s sweeps) continued(pod types.UID) *sweep {
	if known, ok := s.byPod.Get(pod); ok {
		if left, ok := known.(*sweep); ok {
			return left
		}
	}
	return &sweep{nodes: map[string]sweptNode{}}
}

func (s sweeps) keep(pod types.UID, left *sweep) { s.byPod.Add(pod, left) }

func (s sweeps) end(pod types.UID) { s.byPod.Remove(pod) }
