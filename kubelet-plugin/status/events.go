package status

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// The reasons of Events besides those of refusals.
const (
	// ReasonDaemonRestarted says that an MPS daemon was started anew under running containers.
	ReasonDaemonRestarted = "MPSDaemonRestarted"
	// ReasonTimeSliceNotApplied says that the GPU keeps another time-slice class than the claim wished.
	ReasonTimeSliceNotApplied = "TimeSliceNotApplied"
	// ReasonUnhealthy says that something is wrong with a GPU or a MIG device, ReasonGPURecovered that it is over.
	ReasonUnhealthy    = "GPUUnhealthy"
	ReasonGPURecovered = "GPURecovered"
)

// repeatInterval is how long the same is not told again about a claim: kubelet tries for as long as the pod exists.
const repeatInterval = 5 * time.Minute

// notice is something that the users of a claim or of the node are told.
type notice struct {
	// kind is the type of the Event; empty is a warning.
	kind            string
	reason, message string
}

func (n notice) order(o notice) int {
	return cmp.Or(cmp.Compare(n.reason, o.reason), cmp.Compare(n.message, o.message))
}

// eventKey identifies what was told.
type eventKey struct {
	uid string
	notice
}

// eventWriter makes Events from notices. It is safe for concurrent use. Similar Events are counted into one by
// the recorder.
type eventWriter struct {
	recorder record.EventRecorder

	mutex sync.Mutex
	// written is when what was told last.
	written map[eventKey]time.Time
}

// newEventWriter returns a teller that works until end is called.
func (r *Reporter) newEventWriter(ctx context.Context) (t *eventWriter, end func()) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.Client.CoreV1().Events("")})
	source := corev1.EventSource{Component: r.Driver, Host: r.Node}
	return &eventWriter{recorder: broadcaster.NewRecorder(scheme.Scheme, source), written: map[eventKey]time.Time{}}, broadcaster.Shutdown
}

// eventObjects are the claim and every pod that may use it.
func eventObjects(claim *resourceapi.ResourceClaim) []corev1.ObjectReference {
	all := []corev1.ObjectReference{{
		APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}}
	for _, user := range claim.Status.ReservedFor {
		if user.APIGroup == "" && user.Resource == "pods" {
			all = append(all, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: claim.Namespace, Name: user.Name, UID: user.UID})
		}
	}
	return all
}

// write makes an Event of each notice on each of the objects, unless the first one was told the same a short while ago.
func (t *eventWriter) write(objects []corev1.ObjectReference, notices []notice) {
	for _, n := range notices {
		if !t.isDue(eventKey{string(objects[0].UID), n}) {
			continue
		}
		for _, object := range objects {
			t.recorder.Event(&object, cmp.Or(n.kind, corev1.EventTypeWarning), n.reason, n.message)
		}
	}
}

// isDue reports whether it is time to tell it, and remembers that it was told.
func (t *eventWriter) isDue(what eventKey) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := time.Now()
	if last, known := t.written[what]; known && now.Sub(last) < repeatInterval {
		return false
	}
	for old, last := range t.written {
		if now.Sub(last) >= repeatInterval {
			delete(t.written, old)
		}
	}
	if len(t.written) < maxPending {
		t.written[what] = now
	}
	return true
}
