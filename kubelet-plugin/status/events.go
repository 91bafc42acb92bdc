package status

import (
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/record"
)

// The reasons of Events besides those of refusals.
const (
	// ReasonDaemonRestarted says that an MPS daemon was started anew under running containers.
	ReasonDaemonRestarted = "MPSDaemonRestarted"
	// ReasonTimeSliceNotApplied says that the GPU keeps another time-slice class than the claim wished.
	ReasonTimeSliceNotApplied = "TimeSliceNotApplied"
)

const (
	// repeat is how long the same is not told again about a claim: kubelet tries for as long as the pod
	// exists.
	repeat = 5 * time.Minute
	// maxMessage is the longest message in bytes, that of the note of an Event (events.k8s.io/v1).
	maxMessage = 1024
)

// notice is a warning for the users of a claim.
type notice struct{ reason, message string }

// told identifies what was told.
type told struct {
	uid string
	notice
}

// teller makes Events from notices. It is safe for concurrent use. Similar Events are counted into one by
// the recorder.
type teller struct {
	recorder record.EventRecorder

	mutex sync.Mutex
	// told is when what was told last.
	told map[told]time.Time
}

// tell makes an Event of each notice on the claim and on every pod that may use it.
func (t *teller) tell(claim *resourceapi.ResourceClaim, notices []notice) {
	for _, n := range notices {
		if !t.fresh(told{string(claim.UID), n}) {
			continue
		}
		t.recorder.Event(&corev1.ObjectReference{
			APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim",
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		}, corev1.EventTypeWarning, n.reason, n.message)
		for _, user := range claim.Status.ReservedFor {
			if user.APIGroup != "" || user.Resource != "pods" {
				continue
			}
			t.recorder.Event(&corev1.ObjectReference{
				APIVersion: "v1", Kind: "Pod", Namespace: claim.Namespace, Name: user.Name, UID: user.UID,
			}, corev1.EventTypeWarning, n.reason, n.message)
		}
	}
}

// fresh reports whether it is time to tell it, and remembers that it was told.
func (t *teller) fresh(what told) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := time.Now()
	if last, known := t.told[what]; known && now.Sub(last) < repeat {
		return false
	}
	for old, last := range t.told {
		if now.Sub(last) >= repeat {
			delete(t.told, old)
		}
	}
	if len(t.told) < limit {
		t.told[what] = now
	}
	return true
}

// clip shortens the message to what an Event holds.
func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const more = "..."
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}
