package subject

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// tally counts the pods that get bound, from the events of the informer.
type tally struct {
	mutex sync.Mutex
	bound int
	last  time.Time
	// enough is closed when bound reaches the target.
	target int
	enough chan struct{}
}

func watch(pods cache.SharedInformer) (*tally, error) {
	t := &tally{}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		old, known := before.(*corev1.Pod)
		pod, ok := after.(*corev1.Pod)
		if known && ok && old.Spec.NodeName == "" && pod.Spec.NodeName != "" {
			t.count()
		}
	}})
	return t, err
}

func (t *tally) count() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.bound++
	t.last = time.Now()
	if t.bound == t.target {
		close(t.enough)
	}
}

// Expect resets the count; the channel is closed when this number of pods is bound.
func (t *tally) Expect(pods int) <-chan struct{} {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.bound, t.target, t.enough = 0, pods, make(chan struct{})
	return t.enough
}

// Bound returns the number of pods bound since Expect, and the time of the last.
func (t *tally) Bound() (int, time.Time) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.bound, t.last
}
