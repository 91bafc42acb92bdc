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

// The reasons of Events, in addition to those of refusals.
const (
	// ReasonDaemonRestarted: an MPS daemon was restarted under running containers.
	ReasonDaemonRestarted = "MPSDaemonRestarted"
	// ReasonTimeSliceNotApplied: the GPU has another time slice than the claim requested.
	ReasonTimeSliceNotApplied = "TimeSliceNotApplied"
	// ReasonMemoryLimitFailed: a container did not start, because its GPU memory could not be limited.
	ReasonMemoryLimitFailed = "MemoryLimitFailed"
	// ReasonMemoryLimitChanged: the GPU memory that the claim's containers can allocate was changed.
	ReasonMemoryLimitChanged = "MemoryLimitChanged"
	// ReasonUnhealthy: a GPU or MIG device has a fault. ReasonGPURecovered: the fault has ended.
	ReasonUnhealthy    = "GPUUnhealthy"
	ReasonGPURecovered = "GPURecovered"
)

// repeatInterval is the minimum time between two equal Events of a claim: kubelet retries as long as the pod exists.
const repeatInterval = 5 * time.Minute

// notice is the content of an Event.
type notice struct {
	// kind is the type of the Event; empty means Warning.
	kind            string
	reason, message string
}

func (n notice) order(o notice) int {
	return cmp.Or(cmp.Compare(n.reason, o.reason), cmp.Compare(n.message, o.message))
}

// eventKey identifies an Event of an object.
type eventKey struct {
	uid string
	notice
}

// eventWriter writes Events. It is safe for concurrent use. The recorder aggregates similar Events.
type eventWriter struct {
	recorder record.EventRecorder

	mutex sync.Mutex
	// written is when an Event was written last.
	written map[eventKey]time.Time
}

// newEventWriter returns an eventWriter that works until end is called.
func (r *Reporter) newEventWriter(ctx context.Context) (t *eventWriter, end func()) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.Client.CoreV1().Events("")})
	source := corev1.EventSource{Component: r.Driver, Host: r.Node}
	return &eventWriter{recorder: broadcaster.NewRecorder(scheme.Scheme, source), written: map[eventKey]time.Time{}}, broadcaster.Shutdown
}

// eventObjects returns the claim and each pod that may use it.
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

// write writes an Event of each notice on each of the objects, unless the same was written on the first one within repeatInterval.
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

// isDue reports whether the Event may be written, and records that it was.
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
