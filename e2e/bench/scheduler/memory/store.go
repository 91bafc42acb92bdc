package memory

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// object is a pointer to an object of the API.
type object interface {
	comparable
	runtime.Object
	metav1.Object
}

// store keeps the objects of one kind, in the order of their creation, and the log of their changes.
// Returned objects are shared and must not be modified.
type store[T object] struct {
	resource schema.GroupResource

	mutex   sync.Mutex
	changed *sync.Cond
	objects []T
	// places are the positions of the objects.
	places map[types.NamespacedName]int
	// log are the changes since the store was filled; the resource version is its length.
	log []watch.Event
}

func newStore[T object](resource schema.GroupResource, objects ...T) *store[T] {
	s := &store[T]{resource: resource, objects: objects, places: map[types.NamespacedName]int{}}
	s.changed = sync.NewCond(&s.mutex)
	for i, o := range objects {
		s.places[key(o)] = i
	}
	return s
}

func key(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// all are the objects at a resource version.
func (s *store[T]) all() ([]T, string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.objects), strconv.Itoa(len(s.log))
}

// put creates the object or replaces the one of which it is a new version.
func (s *store[T]) put(o T) T {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	o.SetResourceVersion(strconv.Itoa(len(s.log) + 1))
	place, known := s.places[key(o)]
	event := watch.Event{Type: watch.Modified, Object: o}
	if known {
		s.objects[place] = o
	} else {
		event.Type = watch.Added
		s.places[key(o)] = len(s.objects)
		s.objects = append(s.objects, o)
	}
	s.log = append(s.log, event)
	s.changed.Broadcast()
	return o
}

func (s *store[T]) get(name types.NamespacedName) (T, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	place, known := s.places[name]
	if !known {
		var none T
		return none, apierrors.NewNotFound(s.resource, name.Name)
	}
	return s.objects[place], nil
}

// watch sends the changes after the resource version, until ctx ends or the watch is stopped.
func (s *store[T]) watch(ctx context.Context, version string) (watch.Interface, error) {
	next, err := strconv.Atoi(version)
	if err != nil {
		return nil, fmt.Errorf("watch %s from %q: %w", s.resource, version, err)
	}
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.changed.Broadcast()
	})
	go func() {
		<-w.StopChan()
		cancel()
	}()
	go func() {
		defer cancel()
		for ; ; next++ {
			event, ok := s.event(ctx, next)
			if !ok {
				return
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

// event waits for the event at the place in the log; false means that ctx ended before.
func (s *store[T]) event(ctx context.Context, place int) (watch.Event, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for len(s.log) <= place && ctx.Err() == nil {
		s.changed.Wait()
	}
	if ctx.Err() != nil {
		return watch.Event{}, false
	}
	return s.log[place], true
}
