package requeue

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Timers activates pods after a time: kube-scheduler itself retries a rejected pod at an event, or after five minutes. It is
// safe for concurrent use. Activating a pod that no longer exists has no effect.
type Timers struct {
	activate func(*corev1.Pod)

	mu    sync.Mutex
	byPod map[types.UID]*time.Timer
}

// NewTimers returns timers that call activate, each time in another goroutine.
func NewTimers(activate func(*corev1.Pod)) *Timers {
	return &Timers{activate: activate, byPod: map[types.UID]*time.Timer{}}
}

// Has reports whether the time of the pod is not over.
func (t *Timers) Has(pod types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, waits := t.byPod[pod]
	return waits
}

// Set activates the pod after the time, instead of at an earlier set one.
func (t *Timers) Set(pod *corev1.Pod, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if earlier, ok := t.byPod[pod.UID]; ok {
		earlier.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		t.mu.Lock()
		if t.byPod[pod.UID] == timer {
			delete(t.byPod, pod.UID)
		}
		t.mu.Unlock()
		t.activate(pod)
	})
	t.byPod[pod.UID] = timer
}
