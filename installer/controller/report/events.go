package report

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

// maxNote is the maximum length of an Event's text.
const maxNote = 1000

// Recorder writes Events.
type Recorder struct{ Events recorder.EventRecorder }

// Event writes an Event about an object. kind is Normal or Warning, action what the installer did. A text that is too long is cut.
func (r Recorder) Event(object runtime.Object, kind, reason, action, text string) {
	r.Events.Eventf(object, nil, kind, reason, action, "%s", text[:min(len(text), maxNote)])
}

// Timestamp returns a time as the API stores it, so that comparing it with a stored one finds no difference.
func Timestamp(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }
