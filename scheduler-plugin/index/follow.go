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

// Sources are the informers that an index follows. They are shared with the scheduler. The OnEvent functions are
// optional. Each is called after the index has processed an event of its informer, with no lock of the index held.
type Sources struct {
	Slices        resourceinformers.TypedResourceSliceInformer
	OnSlicesEvent OnEvent
	// TaintRules is nil if the cluster has no DeviceTaintRules (feature gate DRADeviceTaintRules).
	TaintRules        resourceinformers.TypedDeviceTaintRuleInformer
	OnTaintRulesEvent OnEvent
	Claims            resourceinformers.ResourceClaimInformer
	OnClaimsEvent     OnEvent
}

// OnEvent is called with the resource version of an event's object, empty if there is no object, and with the
// effect that the event can have on rejected pods.
type OnEvent func(resourceVersion string, effect Effect)

// Effect is what an event can change for a pod that was rejected.
type Effect int

const (
	// FreesNothing is the effect of an event that cannot make a device available.
	FreesNothing Effect = iota + 1
	// MayFreeDevices is the effect of an event that can make a device available.
	MayFreeDevices
)

// call calls the function, if there is one.
func (f OnEvent) call(resourceVersion string, effect Effect) {
	if f != nil {
		f(resourceVersion, effect)
	}
}

// Follow feeds the index from the informers until ctx ends. The informers may already be running. The returned
// function reports whether every object that existed at the start has been processed. Follow is called once per
// index.
func (x *Index) Follow(ctx context.Context, s Sources) (cache.InformerSynced, error) {
	// The tracker combines ResourceSlices and DeviceTaintRules, whose events arrive on two goroutines, and emits
	// the results without ordering them. Handling one event at a time keeps the results in order.
	var serial sync.Mutex
	options := resourceslicetracker.Options{
		EnableDeviceTaintRules: s.TaintRules != nil,
		SliceInformer:          sliceInformer{s.Slices, &serial, s.OnSlicesEvent},
	}
	if s.TaintRules != nil {
		options.TaintInformer = ruleInformer{s.TaintRules, &serial, s.OnTaintRulesEvent}
	}
	tracker, err := resourceslicetracker.StartTracker(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("track ResourceSlices: %w", err)
	}
	context.AfterFunc(ctx, tracker.Stop)
	serial.Lock()
	slices, err := tracker.AddEventHandler(newHandler(x.SetSlice, x.DeleteSlice))
	serial.Unlock()
	if err != nil {
		return nil, fmt.Errorf("follow ResourceSlices: %w", err)
	}
	claims, err := s.Claims.Informer().AddEventHandler(claimHandler{newHandler(x.SetClaim, x.DeleteClaim), s.OnClaimsEvent})
	if err != nil {
		return nil, fmt.Errorf("follow ResourceClaims: %w", err)
	}
	return func() bool { return slices.HasSynced() && claims.HasSynced() }, nil
}

// newHandler returns an event handler that passes objects to set and deleted objects to remove.
func newHandler[T any](set, remove func(*T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { passObject(object, set) },
		UpdateFunc: func(_, object any) {
			passObject(object, set)
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			passObject(object, remove)
		},
	}
}

// passObject calls to with the object unless it is nil. The tracker reports the deletion of a ResourceSlice that it
// never had with a nil object.
func passObject[T any](object any, to func(*T)) {
	if known, ok := object.(*T); ok && known != nil {
		to(known)
	}
}

// claimHandler calls onEvent after the wrapped handler has processed an event of a ResourceClaim.
type claimHandler struct {
	cache.ResourceEventHandler
	onEvent OnEvent
}

// OnAdd reports an event that frees nothing.
func (h claimHandler) OnAdd(object any, initial bool) {
	h.ResourceEventHandler.OnAdd(object, initial)
	if claim, ok := object.(*resourceapi.ResourceClaim); ok {
		h.onEvent.call(claim.ResourceVersion, FreesNothing)
	}
}

// OnUpdate reports an event that frees devices if the claim was deallocated.
func (h claimHandler) OnUpdate(before, after any) {
	h.ResourceEventHandler.OnUpdate(before, after)
	old, _ := before.(*resourceapi.ResourceClaim)
	claim, ok := after.(*resourceapi.ResourceClaim)
	switch {
	case !ok:
	case old != nil && old.Status.Allocation != nil && claim.Status.Allocation == nil:
		h.onEvent.call(claim.ResourceVersion, MayFreeDevices)
	default:
		h.onEvent.call(claim.ResourceVersion, FreesNothing)
	}
}

// OnDelete reports an event that may free devices.
func (h claimHandler) OnDelete(object any) {
	h.ResourceEventHandler.OnDelete(object)
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if claim, ok := object.(*resourceapi.ResourceClaim); ok {
		h.onEvent.call(claim.ResourceVersion, MayFreeDevices)
	}
}

// sliceInformer is the scheduler's ResourceSlice informer, prepared for a second tracker.
type sliceInformer struct {
	resourceinformers.TypedResourceSliceInformer
	serial  *sync.Mutex
	onEvent OnEvent
}

// TypedInformer returns the informer with serialized handlers.
func (s sliceInformer) TypedInformer() resourceinformers.ResourceSliceIndexInformer {
	return serialInformer[*resourceapi.ResourceSlice]{s.TypedResourceSliceInformer.TypedInformer(), s.serial, s.onEvent}
}

// ruleInformer is the scheduler's DeviceTaintRule informer, prepared for a second tracker.
type ruleInformer struct {
	resourceinformers.TypedDeviceTaintRuleInformer
	serial  *sync.Mutex
	onEvent OnEvent
}

// TypedInformer returns the informer with serialized handlers.
func (r ruleInformer) TypedInformer() resourceinformers.DeviceTaintRuleIndexInformer {
	return serialInformer[*resourceapi.DeviceTaintRule]{r.TypedDeviceTaintRuleInformer.TypedInformer(), r.serial, r.onEvent}
}

// versionedObject is an object of the Kubernetes API.
type versionedObject interface {
	cache.Object
	GetResourceVersion() string
}

// serialInformer is an informer whose handlers run under a mutex that is shared with other informers. onEvent is
// called after each event, which may free devices whatever it is.
type serialInformer[T versionedObject] struct {
	cache.TypedSharedIndexInformer[T]
	serial  *sync.Mutex
	onEvent OnEvent
}

// AddTypedIndexers adds the indexers that the informer does not have yet. A tracker adds its own; those of the
// scheduler's tracker have the same names.
func (i serialInformer[T]) AddTypedIndexers(indexers cache.TypedIndexers[T]) error {
	missing := cache.TypedIndexers[T]{}
	known := i.GetIndexer().GetIndexers()
	for name, indexer := range indexers {
		if _, ok := known[name]; !ok {
			missing[name] = indexer
		}
	}
	return i.TypedSharedIndexInformer.AddTypedIndexers(missing)
}

// AddTypedEventHandler adds the handler, to be called under the mutex.
func (i serialInformer[T]) AddTypedEventHandler(
	h cache.TypedResourceEventHandler[T], options ...cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.TypedSharedIndexInformer.AddTypedEventHandler(serialHandler[T]{h, i.serial, i.onEvent}, options...)
}

// serialHandler is a handler that is called under a mutex.
type serialHandler[T versionedObject] struct {
	handler cache.TypedResourceEventHandler[T]
	serial  *sync.Mutex
	onEvent OnEvent
}

// OnAdd passes the event on and reports it.
func (h serialHandler[T]) OnAdd(object T, initial bool) {
	h.serially(func() { h.handler.OnAdd(object, initial) })
	h.onEvent.call(object.GetResourceVersion(), MayFreeDevices)
}

// OnUpdate passes the event on and reports it.
func (h serialHandler[T]) OnUpdate(before, after T) {
	h.serially(func() { h.handler.OnUpdate(before, after) })
	h.onEvent.call(after.GetResourceVersion(), MayFreeDevices)
}

// OnDelete passes the event on and reports it. The object is unknown if the deletion itself was missed.
func (h serialHandler[T]) OnDelete(object cache.DeletedObject[T]) {
	h.serially(func() { h.handler.OnDelete(object) })
	var none T
	if object.OptionalObj == none {
		h.onEvent.call("", MayFreeDevices)
		return
	}
	h.onEvent.call(object.OptionalObj.GetResourceVersion(), MayFreeDevices)
}

// serially calls the function under the mutex.
func (h serialHandler[T]) serially(call func()) {
	h.serial.Lock()
	defer h.serial.Unlock()
	call()
}
