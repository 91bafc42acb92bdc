package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// maxOutage is the time for which the requests of a watch may fail. Meanwhile its objects are those of the last response.
const maxOutage = time.Minute

// retries is the time between attempts to resume a watch, up to 20 s with jitter: shorter than maxOutage, so that a restart of the API server is survived.
var retries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 10 * time.Second}

// Watched returns the cluster with lists from caches. The first list of a query is requested from the API server and fails like any request; a watch
// then updates it until stop is called, which waits for the end of all watches. changed receives a value after changes, at most one at a time.
func (c *Cluster) Watched(ctx context.Context) (watched *Cluster, changed <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	all := &caches{changed: make(chan struct{}, 1), byQuery: map[query]any{}}
	all.start = func(run func(context.Context)) { all.running.Go(func() { run(ctx) }) }
	copied := *c
	copied.caches = all
	return &copied, all.changed, func() {
		cancel()
		all.running.Wait()
	}
}

// caches are the caches of a watched cluster.
type caches struct {
	changed chan struct{}
	// start runs a function in the background until the caches stop.
	start   func(run func(context.Context))
	running sync.WaitGroup
	mu      sync.Mutex
	// byQuery has an *objectCache per query.
	byQuery map[query]any
}

// notify reports a change to the receiver of changed.
func (a *caches) notify() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// cacheOf returns the cache of the query and starts its watch at the first call.
func cacheOf[T any, L runtime.Object](all *caches, q query, from client[L]) *objectCache[T] {
	all.mu.Lock()
	defer all.mu.Unlock()
	if known, ok := all.byQuery[q].(*objectCache[T]); ok {
		return known
	}
	c := &objectCache[T]{notify: all.notify, objects: map[string]*T{}, responded: make(chan struct{})}
	all.byQuery[q] = c
	requests := observed{ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.ResourceVersion == "0" {
				options.ResourceVersion = "" // the first list is as recent as one without a watch
			}
			options.LabelSelector = q.selector
			list, err := from.List(ctx, options)
			if isFailure(ctx, err) {
				c.failed(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = q.selector
			events, err := from.Watch(ctx, options)
			switch {
			case err == nil:
				c.succeeded()
			case isFailure(ctx, err):
				c.failed(err)
			}
			return events, err
		},
	}}
	all.start(cache.NewReflectorWithOptions(requests, nil, c, cache.ReflectorOptions{Name: q.what, Backoff: &retries}).RunWithContext)
	return c
}

// isFailure reports whether the error is that of a request that failed, and no end of the watch or of the resource version: after the latter, the reflector
// lists again.
func isFailure(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
}

// observed is a cache.ListWatch that is used with a list before the watch: a list that is refused has the same error as without a watch.
type observed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported makes the reflector list first.
func (observed) IsWatchListSemanticsUnSupported() bool { return true }

// objectCache holds the objects of one query. It is the store of a reflector. Its methods can be called concurrently.
type objectCache[T any] struct {
	// notify is called after a change of the objects or of the error that list returns.
	notify func()
	// responded is closed after the first list and watch, or after the first request that failed.
	responded chan struct{}
	mu        sync.Mutex
	objects   map[string]*T
	// sorted are the objects in order of their keys; nil after a change.
	sorted []T
	// watched is set after the first watch request that succeeded.
	watched bool
	// err is the error of the last request, since is when requests began to fail. nil: the watch is established, or not requested yet.
	err     error
	since   time.Time
	expires *time.Timer
}

// list returns the objects. Before the first watch, and when requests have failed for maxOutage, it returns the error of the request.
func (c *objectCache[T]) list(ctx context.Context) ([]T, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.responded:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil && !c.watched:
		return nil, c.err
	case c.expired():
		return nil, fmt.Errorf("no watch for %s: %w", maxOutage, c.err)
	}
	if c.sorted == nil {
		c.sorted = make([]T, 0, len(c.objects))
		for _, key := range slices.Sorted(maps.Keys(c.objects)) {
			c.sorted = append(c.sorted, *c.objects[key])
		}
	}
	return slices.Clone(c.sorted), nil
}

// succeeded records a watch that was established.
func (c *objectCache[T]) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		c.err = nil
		c.expires.Stop()
		c.notify()
	}
	c.watched = true
	c.respond()
}

// failed records a request that failed. An error that list returns stays until a watch is established: others can differ in details only.
func (c *objectCache[T]) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err == nil:
		c.err, c.since, c.expires = err, time.Now(), time.AfterFunc(maxOutage, c.notify)
	case c.watched && !c.expired():
		c.err = err
	}
	c.respond()
}

// expired reports whether requests have failed for maxOutage. c.mu must be held.
func (c *objectCache[T]) expired() bool { return c.err != nil && time.Since(c.since) >= maxOutage }

// respond closes responded. c.mu must be held.
func (c *objectCache[T]) respond() {
	select {
	case <-c.responded:
	default:
		close(c.responded)
	}
}

// Add implements cache.ReflectorStore.
func (c *objectCache[T]) Add(object any) error { return c.Update(object) }

// Update implements cache.ReflectorStore.
func (c *objectCache[T]) Update(object any) error {
	key, item, err := c.read(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.objects[key]; old == nil || !equality.Semantic.DeepEqual(old, item) {
		c.objects[key], c.sorted = item, nil
		c.notify()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (c *objectCache[T]) Delete(object any) error {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects, key)
	c.sorted = nil
	c.notify()
	return nil
}

// Replace implements cache.ReflectorStore.
func (c *objectCache[T]) Replace(list []any, _ string) error {
	objects := make(map[string]*T, len(list))
	for _, object := range list {
		key, item, err := c.read(object)
		if err != nil {
			return err
		}
		objects[key] = item
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects, c.sorted = objects, nil
	if c.watched {
		c.notify()
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (c *objectCache[T]) Resync() error { return nil }

// read returns the key of an object and what the cache keeps of it. An object that cannot be read is a failure of the watch.
func (c *objectCache[T]) read(object any) (string, *T, error) {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return "", nil, err
	}
	found, ok := object.(runtime.Object)
	if !ok {
		return "", nil, fmt.Errorf("unexpected object of type %T", object)
	}
	item, err := decode[T](found)
	if err != nil {
		c.failed(err)
		return "", nil, err
	}
	kept := *item
	trim(&kept)
	return key, &kept, nil
}

// trim removes what no verb with --watch reads. A cluster has many pods, which change often: they need less memory, and fewer of their changes count.
func trim(object any) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
		m.SetResourceVersion("")
	}
	switch o := object.(type) {
	case *corev1.Pod:
		o.Annotations = nil
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, ResourceClaims: o.Spec.ResourceClaims}
	case *corev1.Node:
		o.Annotations, o.Spec, o.Status = nil, corev1.NodeSpec{}, corev1.NodeStatus{}
	}
}
