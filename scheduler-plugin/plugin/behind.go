package plugin

import (
	"math"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// behind closes a gap: the scheduler's own handlers and ours hear of an event on ways of their own. When
// theirs comes first, a pod may be tried because of it, be refused because the index is behind, and then
// wait for an event that has been. So every attempt notes at its beginning what the scheduler may have
// heard of at most, and an event that comes to us later, and is not newer than that, has the pod tried
// again; a pod that is bound by then is not concerned.
//
// It is safe for concurrent use. Resource versions are compared as numbers, which the API allows; those
// that are none count as old for events and as new for attempts: that costs an attempt.
type behind struct {
	// received returns the version of the last object that the informer received.
	received func() string
	// again has pods tried again.
	again func(pods []*corev1.Pod)

	mu    sync.Mutex
	begun []attempt
}

// attempt is a pod that is tried, and the version that the informer had received when that began. Versions
// only grow, so a list of attempts is in order.
type attempt struct {
	pod     *corev1.Pod
	version uint64
}

// mostAttempts bounds the attempts that are remembered: in a quiet cluster no event makes them obsolete.
const mostAttempts = 4096

// begin notes that an attempt begins; nothing was asked of the index for it yet.
func (b *behind) begin(pod *corev1.Pod) {
	version := number(b.received(), math.MaxUint64)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.begun) == mostAttempts {
		b.begun = b.begun[1:]
	}
	b.begun = append(b.begun, attempt{pod, version})
}

// heard is called when the index has taken in the object of an event, which has the version. Attempts
// begun before the scheduler can have heard of it are of no interest any more: it has the pod tried again
// by itself if that helps. Those begun later were begun too early, if the event may have freed something.
func (b *behind) heard(resourceVersion string, may freeing) {
	version := number(resourceVersion, 0)
	b.mu.Lock()
	for len(b.begun) > 0 && b.begun[0].version < version {
		b.begun = b.begun[1:]
	}
	var early []*corev1.Pod
	if may == frees {
		for _, a := range b.begun {
			early = append(early, a.pod)
		}
		b.begun = nil
	}
	b.mu.Unlock()
	if len(early) > 0 {
		b.again(early)
	}
}

// freeing says whether an event may let a refused pod run.
type freeing int

const (
	frees freeing = iota + 1
	keeps
)

func number(version string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(version, 10, 64); err == nil {
		return n
	}
	return otherwise
}
