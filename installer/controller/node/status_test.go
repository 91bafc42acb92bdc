package node

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// The status remembers since when an agent is not accepted, whether its pod is ready or not: by that a node is left in service for a moment.
func TestSinceWhenTheAgentIsAway(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &nodeObservation{}
	s.Node.BootID = "b"
	s.Status.Agent = &v1alpha1.AgentStatus{BootID: "b", PodUID: "agent", DriverVersion: "580", Ready: true}
	s.Agent = phase.Pod{UID: "agent", State: phase.PodReady}
	var published []v1alpha1.ComponentStatus
	for _, step := range []struct {
		after    time.Duration
		change   func()
		state    v1alpha1.ComponentState
		reason   string
		sinceMin int
	}{
		{0, func() {}, v1alpha1.ComponentReady, "", 0},
		{time.Minute, func() {}, v1alpha1.ComponentReady, "", 0},
		{2 * time.Minute, func() { s.Status.Agent.Ready = false }, v1alpha1.ComponentStarting, "AgentNotReady", 2},
		{3 * time.Minute, func() { s.Agent.State = phase.PodStarting }, v1alpha1.ComponentStarting, "", 2},
		{4 * time.Minute, func() { s.Agent.State, s.Agent.UID = phase.PodReady, "another" }, v1alpha1.ComponentStarting, "AgentNotReady", 2},
		{5 * time.Minute, func() { s.Status.Agent.PodUID, s.Status.Agent.Ready = "another", true }, v1alpha1.ComponentReady, "", 5},
		{6 * time.Minute, func() { s.Status.Agent.DriverVersion = "" }, v1alpha1.ComponentStarting, "AgentNotReady", 6},
	} {
		step.change()
		s.Now = began.Add(step.after)
		published = componentStatuses(s, published)
		var agent v1alpha1.ComponentStatus
		for _, c := range published {
			if c.Name == phase.ComponentAgent {
				agent = c
			}
		}
		since := metav1.NewTime(began.Add(time.Duration(step.sinceMin) * time.Minute))
		if agent.State != step.state || agent.Reason != step.reason || !agent.Since.Equal(&since) {
			t.Errorf("after %v: %s %q since %v, want %s %q since %v", step.after, agent.State, agent.Reason, agent.Since, step.state, step.reason, since)
		}
	}
}
