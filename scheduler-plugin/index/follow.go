package index

import (
	"context"
	"fmt"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/tools/cache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
)

// Sources are the informers that an index follows. They are shared with the scheduler.
type Sources struct {
	Slices resourceinformers.TypedResourceSliceInformer
	// TaintRules is nil where the cluster has no DeviceTaintRules (feature gate DRADeviceTaintRules).
	TaintRules resourceinformers.TypedDeviceTaintRuleInformer
	Claims     resourceinformers.ResourceClaimInformer
}

// Follow feeds the index from the informers, whether or not they run already, until ctx ends. The answer
// says when everything that they knew at their start has arrived. It is called once per index.
func (x *Index) Follow(ctx context.Context, s Sources) (cache.InformerSynced, error) {
	// Slices and rules come from two goroutines, and the tracker hands on what it made of them without
	// an order: one at a time they come in theirs.
	var order sync.Mutex
	options := resourceslicetracker.Options{
		EnableDeviceTaintRules: s.TaintRules != nil,
		SliceInformer:          sliceInformer{s.Slices, &order},
	}
	if s.TaintRules != nil {
		options.TaintInformer = ruleInformer{s.TaintRules, &order}
	}
	tracker, err := resourceslicetracker.StartTracker(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("track ResourceSlices: %w", err)
	}
	context.AfterFunc(ctx, tracker.Stop)
	order.Lock()
	slices, err := tracker.AddEventHandler(handler(x.SetSlice, x.DeleteSlice))
	order.Unlock()
	if err != nil {
		return nil, fmt.Errorf("follow ResourceSlices: %w", err)
	}
	claims, err := s.Claims.Informer().AddEventHandler(handler(x.SetClaim, x.DeleteClaim))
	if err != nil {
		return nil, fmt.Errorf("follow ResourceClaims: %w", err)
	}
	return func() bool { return slices.HasSynced() && claims.HasSynced() }, nil
}

// handler hands on the objects of events.
func handler[T any](set, remove func(*T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { pass(object, set) },
		UpdateFunc: func(_, object any) {
			pass(object, set)
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			pass(object, remove)
		},
	}
}

// pass hands on an object; the tracker tells of the deletion of a slice that it never had by none.
func pass[T any](object any, to func(*T)) {
	if known, ok := object.(*T); ok && known != nil {
		to(known)
	}
}

// sliceInformer is the scheduler's informer of slices for a second tracker: the index that trackers look
// slices up by may be there already, and events wait for their turn.
type sliceInformer struct {
	resourceinformers.TypedResourceSliceInformer
	order *sync.Mutex
}

// TypedInformer returns the informer.
func (s sliceInformer) TypedInformer() resourceinformers.ResourceSliceIndexInformer {
	return inOrder[*resourceapi.ResourceSlice]{s.TypedResourceSliceInformer.TypedInformer(), s.order}
}

// ruleInformer is the scheduler's informer of rules, whose events wait for their turn.
type ruleInformer struct {
	resourceinformers.TypedDeviceTaintRuleInformer
	order *sync.Mutex
}

// TypedInformer returns the informer.
func (r ruleInformer) TypedInformer() resourceinformers.DeviceTaintRuleIndexInformer {
	return inOrder[*resourceapi.DeviceTaintRule]{r.TypedDeviceTaintRuleInformer.TypedInformer(), r.order}
}

// inOrder is an informer whose handlers run one at a time with those of others.
type inOrder[T cache.Object] struct {
	cache.TypedSharedIndexInformer[T]
	order *sync.Mutex
}

// AddTypedIndexers adds the indexers that the informer does not have.
func (i inOrder[T]) AddTypedIndexers(indexers cache.TypedIndexers[T]) error {
	missing := cache.TypedIndexers[T]{}
	known := i.GetIndexer().GetIndexers()
	for name, indexer := range indexers {
		if _, ok := known[name]; !ok {
			missing[name] = indexer
		}
	}
	return i.TypedSharedIndexInformer.AddTypedIndexers(missing)
}

// AddTypedEventHandler adds the handler, to be called under the lock.
func (i inOrder[T]) AddTypedEventHandler(h cache.TypedResourceEventHandler[T], options ...cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.TypedSharedIndexInformer.AddTypedEventHandler(locked[T]{h, i.order}, options...)
}

// locked is a handler that is called under a lock.
type locked[T cache.Object] struct {
	handler cache.TypedResourceEventHandler[T]
	order   *sync.Mutex
}

// OnAdd passes the event on.
func (l locked[T]) OnAdd(object T, initial bool) {
	l.order.Lock()
	defer l.order.Unlock()
	l.handler.OnAdd(object, initial)
}

// OnUpdate passes the event on.
func (l locked[T]) OnUpdate(before, after T) {
	l.order.Lock()
	defer l.order.Unlock()
	l.handler.OnUpdate(before, after)
}

// OnDelete passes the event on.
func (l locked[T]) OnDelete(object cache.DeletedObject[T]) {
	l.order.Lock()
	defer l.order.Unlock()
	l.handler.OnDelete(object)
}
