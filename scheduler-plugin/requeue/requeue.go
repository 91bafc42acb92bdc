package requeue

import (
	"math"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// Requeuer retries pods whose rejection was caused by a lag between the scheduler and the index.
//
// Both read the same informer, but through handlers of their own, which run at different times. If the scheduler's
// handler runs first, this can happen:
//
//  1. A claim is deleted. The scheduler's handler runs and moves a waiting pod to the active queue.
//  2. The pod is attempted. The index has not processed the deletion yet, so the devices count as held and the pod
//     is rejected.
//  3. The index processes the deletion. No further event follows, so the pod would wait for minutes.
//
// Requeuer detects step 3. StartAttempt records the resource version of the newest object that the informer had
// received when the attempt started; the attempt cannot have been triggered by anything newer. EventProcessed is
// called after the index has processed an event. If the event is not newer than the recorded version and may free
// devices, the attempt may have missed it, and the pod is activated. Newer events need nothing: the scheduler
// processes them after the attempt and requeues the pod by its queueing hints.
//
// Example: the informer has received version 7 when an attempt starts. The index then processes a deletion with
// version 6: the pod is activated. Had the deletion version 8, the scheduler would handle it.
//
// There is one Requeuer per informer, because resource versions of different resources are not comparable here.
// It is safe for concurrent use. Activating a pod that is already bound has no effect.
//
// Versions are compared as numbers, which the Kubernetes API guarantees (KEP-5504). A version that is not a number counts
// as infinitely old for an event and infinitely new for an attempt, which costs at most one needless attempt.
type Requeuer struct {
	// received returns the resource version of the newest object that the informer has received.
	received func() string
	// activate moves the pods to the scheduler's active queue.
	activate func(pods []*corev1.Pod)

	mu sync.Mutex
	// attempts are in order of start, hence of version: an informer's versions only grow.
	attempts []attempt
}

// attempt is a scheduling attempt and the version that the informer had received when it started.
type attempt struct {
	pod     *corev1.Pod
	version uint64
}

// maxAttempts limits the recorded attempts of one Requeuer. Without events no attempt becomes obsolete, so a quiet
// cluster would record them without end.
const maxAttempts = 4096

// NewRequeuer returns a Requeuer for an informer. received returns the resource version of the newest object that
// the informer has received (LastSyncResourceVersion). activate is called without locks held.
func NewRequeuer(received func() string, activate func(pods []*corev1.Pod)) *Requeuer {
	return &Requeuer{received: received, activate: activate}
}

// NoVersion is the received function for changes that no informer reports, such as the end of a nomination. Every
// recorded attempt counts as one that may have missed them.
func NoVersion() string { return "" }

// StartAttempt records that an attempt to schedule the pod starts. It must be called before the attempt reads the
// index.
func (r *Requeuer) StartAttempt(pod *corev1.Pod) {
	version := parseVersion(r.received(), math.MaxUint64)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.attempts) == maxAttempts {
		r.attempts = r.attempts[1:]
	}
	r.attempts = append(r.attempts, attempt{pod, version})
}

// EventProcessed activates the pods whose attempts may have missed an event. It must be called after the index has
// processed the event. resourceVersion is that of the event's object, empty if there is none.
func (r *Requeuer) EventProcessed(resourceVersion string, effect index.Effect) {
	version := parseVersion(resourceVersion, 0)
	r.mu.Lock()
	// Attempts that started before the informer received the event are dropped: the scheduler's own handler runs
	// after they started and requeues their pods if the event helps them.
	for len(r.attempts) > 0 && r.attempts[0].version < version {
		r.attempts = r.attempts[1:]
	}
	// What remains started when the informer had the event. Those attempts may have read the index too early.
	var missed []*corev1.Pod
	if effect == index.MayFreeDevices {
		for _, a := range r.attempts {
			missed = append(missed, a.pod)
		}
		r.attempts = nil
	}
	r.mu.Unlock()
	if len(missed) > 0 {
		r.activate(missed)
	}
}

// parseVersion returns the resource version as a number, or the default if it is not one.
func parseVersion(version string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(version, 10, 64); err == nil {
		return n
	}
	return otherwise
}
