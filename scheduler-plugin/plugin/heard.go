package plugin

import (
	resourceapi "k8s.io/api/resource/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/tools/cache"
)

// The informers below are those that the index follows. Whatever the index has taken in, behind hears of.

// heardClaims is the informer of claims.
type heardClaims struct {
	resourceinformers.ResourceClaimInformer
	behind *behind
}

// Informer returns the informer.
func (c heardClaims) Informer() cache.SharedIndexInformer {
	return heardClaimInformer{c.ResourceClaimInformer.Informer(), c.behind}
}

type heardClaimInformer struct {
	cache.SharedIndexInformer
	behind *behind
}

// AddEventHandler adds the handler.
func (i heardClaimInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(heardClaimHandler{h, i.behind})
}

type heardClaimHandler struct {
	cache.ResourceEventHandler
	behind *behind
}

// OnAdd frees nothing.
func (h heardClaimHandler) OnAdd(object any, initial bool) {
	h.ResourceEventHandler.OnAdd(object, initial)
	if claim, ok := object.(*resourceapi.ResourceClaim); ok {
		h.behind.heard(claim.ResourceVersion, keeps)
	}
}

// OnUpdate frees devices if the claim had some.
func (h heardClaimHandler) OnUpdate(before, after any) {
	h.ResourceEventHandler.OnUpdate(before, after)
	old, _ := before.(*resourceapi.ResourceClaim)
	claim, ok := after.(*resourceapi.ResourceClaim)
	switch {
	case !ok:
	case old != nil && old.Status.Allocation != nil && claim.Status.Allocation == nil:
		h.behind.heard(claim.ResourceVersion, frees)
	default:
		h.behind.heard(claim.ResourceVersion, keeps)
	}
}

// OnDelete may free devices.
func (h heardClaimHandler) OnDelete(object any) {
	h.ResourceEventHandler.OnDelete(object)
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if claim, ok := object.(*resourceapi.ResourceClaim); ok {
		h.behind.heard(claim.ResourceVersion, frees)
	}
}

// heardSlices is the informer of slices.
type heardSlices struct {
	resourceinformers.TypedResourceSliceInformer
	behind *behind
}

// TypedInformer returns the informer.
func (s heardSlices) TypedInformer() resourceinformers.ResourceSliceIndexInformer {
	return heardInformer[*resourceapi.ResourceSlice]{s.TypedResourceSliceInformer.TypedInformer(), s.behind}
}

// heardRules is the informer of rules for taints.
type heardRules struct {
	resourceinformers.TypedDeviceTaintRuleInformer
	behind *behind
}

// TypedInformer returns the informer.
func (r heardRules) TypedInformer() resourceinformers.DeviceTaintRuleIndexInformer {
	return heardInformer[*resourceapi.DeviceTaintRule]{r.TypedDeviceTaintRuleInformer.TypedInformer(), r.behind}
}

// versioned is an object of the API.
type versioned interface {
	cache.Object
	GetResourceVersion() string
}

// heardInformer is an informer of objects every event of which may free devices.
type heardInformer[T versioned] struct {
	cache.TypedSharedIndexInformer[T]
	behind *behind
}

// AddTypedEventHandler adds the handler.
func (i heardInformer[T]) AddTypedEventHandler(h cache.TypedResourceEventHandler[T], options ...cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.TypedSharedIndexInformer.AddTypedEventHandler(heardHandler[T]{h, i.behind}, options...)
}

type heardHandler[T versioned] struct {
	cache.TypedResourceEventHandler[T]
	behind *behind
}

// OnAdd may free devices.
func (h heardHandler[T]) OnAdd(object T, initial bool) {
	h.TypedResourceEventHandler.OnAdd(object, initial)
	h.behind.heard(object.GetResourceVersion(), frees)
}

// OnUpdate may free devices.
func (h heardHandler[T]) OnUpdate(before, after T) {
	h.TypedResourceEventHandler.OnUpdate(before, after)
	h.behind.heard(after.GetResourceVersion(), frees)
}

// OnDelete may free devices.
func (h heardHandler[T]) OnDelete(object cache.DeletedObject[T]) {
	h.TypedResourceEventHandler.OnDelete(object)
	var none T
	if object.OptionalObj == none {
		h.behind.heard("", frees)
		return
	}
	h.behind.heard(object.OptionalObj.GetResourceVersion(), frees)
}
