package report

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// A node is counted once, by its present state, and not any more when it is removed.
func TestNodesAreCountedByTheirState(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewMetrics(registry); err == nil {
		t.Error("the metrics are registered twice")
	}
	now := time.Unix(1000, 0)
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	status := v1alpha1.GPUNodeStatus{Phase: v1alpha1.PhaseReady, Since: metav1.NewTime(now), Remediations: []v1alpha1.RemediationStatus{{Step: v1alpha1.RemediationStepHold}, {Step: v1alpha1.RemediationStepHold}}}
	for range 2 {
		m.ObserveNode(node, status, now)
	}
	if got := testutil.ToFloat64(m.nodes.WithLabelValues("Ready")); got != 1 {
		t.Errorf("%v nodes are Ready", got)
	}
	if got := testutil.ToFloat64(m.remedies.WithLabelValues("Hold")); got != 2 {
		t.Errorf("%v GPUs are held", got)
	}
	node.Status = status
	m.ObserveNode(node, v1alpha1.GPUNodeStatus{Phase: v1alpha1.PhaseBlocked, Reason: "Conflict"}, now.Add(time.Minute))
	if ready, stuck := testutil.ToFloat64(m.nodes.WithLabelValues("Ready")), testutil.ToFloat64(m.reasons.WithLabelValues("Blocked", "Conflict")); ready != 0 || stuck != 1 {
		t.Errorf("after a move %v are Ready and %v Blocked", ready, stuck)
	}
	if testutil.CollectAndCount(m.phases) != 1 {
		t.Error("the time in the phase is not observed")
	}
	for range 2 {
		m.RemoveNode("n")
	}
	if got := testutil.ToFloat64(m.nodes.WithLabelValues("Blocked")); got != 0 {
		t.Errorf("%v nodes are Blocked after the last one was removed", got)
	}
}

// A rollout has one stage, evictions are counted by their answer.
func TestCounters(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m.SetRolloutStage("o", &v1alpha1.RolloutStatus{Stage: v1alpha1.RolloutPaused})
	m.SetRolloutStage("o", &v1alpha1.RolloutStatus{Stage: "Rolling"})
	if got := testutil.CollectAndCount(m.stages); got != 1 {
		t.Errorf("a rollout has %d stages", got)
	}
	m.SetRolloutStage("o", nil)
	if got := testutil.CollectAndCount(m.stages); got != 0 {
		t.Errorf("no rollout has %d stages", got)
	}
	m.AddEvictions(2, 1)
	m.AddEvictions(0, 1)
	if granted, refused := testutil.ToFloat64(m.evictions.WithLabelValues("granted")), testutil.ToFloat64(m.evictions.WithLabelValues("refused")); granted != 2 || refused != 2 {
		t.Errorf("%v evictions granted, %v refused", granted, refused)
	}
	m.CountRemediation(v1alpha1.OutcomeFailed)
	m.ObserveTimeToReady(time.Minute)
	if testutil.ToFloat64(m.remediations.WithLabelValues("Failed")) != 1 || testutil.CollectAndCount(m.timeToReady) != 1 {
		t.Error("the remediation or the time is not counted")
	}
}

// An obstacle keeps the first error of an action, until the action is performed or another one fails.
func TestObstacles(t *testing.T) {
	o := NewObstacles()
	o.Set("n", "Taint", errors.New("denied at 12:00"))
	o.Set("n", "Taint", errors.New("denied at 12:01"))
	if got := o.Of("n").Explain("Taint", "the node is tainted"); got != "the node is tainted: denied at 12:00" {
		t.Errorf("got %q", got)
	}
	if got := o.Of("n").Explain("Taint", ""); got != "denied at 12:00" {
		t.Errorf("without a message: got %q", got)
	}
	if got := o.Of("n").Explain("Taint", "denied at 12:00 already"); got != "denied at 12:00 already" {
		t.Errorf("a message that has it: got %q", got)
	}
	if got := o.Of("n").Explain("Evict", "m"); got != "m" {
		t.Errorf("another action: got %q", got)
	}
	o.Set("n", "Evict", errors.New("other"))
	if got := o.Of("n").Text; got != "other" {
		t.Errorf("after another action failed: got %q", got)
	}
	o.Set("n", "Evict", nil)
	if got := o.Of("n"); got != (Obstacle{}) {
		t.Errorf("after it was performed: got %+v", got)
	}
	o.Set(GPUKey("n", "g"), "Evict", errors.New("e"))
	o.Set("n2", "Evict", errors.New("e"))
	o.RemoveNode("n")
	if o.Of(GPUKey("n", "g")).Text != "" || o.Of("n2").Text == "" {
		t.Error("the obstacles of the wrong node were removed")
	}
}

// TestOriginalRemovesTheAddedError checks that the error is removed only from the message to which it was added, also after the action succeeded.
func TestOriginalRemovesTheAddedError(t *testing.T) {
	o, key := NewObstacles(), GPUKey("n", "g")
	o.Set(key, "Evict", errors.New("denied"))
	if got := o.Explain(key, "Evict", "the GPU is drained"); got != "the GPU is drained: denied" {
		t.Errorf("got %q", got)
	}
	o.Set(key, "Evict", nil)
	for message, want := range map[string]string{
		"the GPU is drained: denied": "the GPU is drained", "the claim is gone: denied": "the claim is gone: denied", "": "",
	} {
		if got := o.Original(key, message); got != want {
			t.Errorf("original of %q: got %q, want %q", message, got, want)
		}
	}
	if got := o.Original(GPUKey("n", "another"), "the GPU is drained: denied"); got != "the GPU is drained: denied" {
		t.Errorf("another GPU: got %q", got)
	}
	o.RemoveNode("n")
	if got := o.Original(key, "the GPU is drained: denied"); got != "the GPU is drained: denied" {
		t.Errorf("after the node was removed: got %q", got)
	}
}

// The text of an Event is cut to what the API server accepts.
func TestEventTexts(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	Recorder{recorder}.Event(&corev1.Node{}, corev1.EventTypeNormal, "Reason", "Act", strings.Repeat("x", 2000))
	if got := <-recorder.Events; len(got) > 1100 || !strings.Contains(got, "Reason") {
		t.Errorf("the Event has %d characters", len(got))
	}
	if got := Timestamp(time.Unix(5, 999)); got.Nanosecond() != 0 || got.Unix() != 5 {
		t.Errorf("the time is %v", got)
	}
}
