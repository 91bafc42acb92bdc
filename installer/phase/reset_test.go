package phase

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// TestSwapWaitsForAReset checks that a node that is to change its driver or lose its agent waits for an ordered GPU reset, reports it, and waits at
// most for the reset timeout.
func TestSwapWaitsForAReset(t *testing.T) {
	at := func(change func(o *Observed)) Observed {
		w := with(serving(0), func(w *world) { w.spec, w.wanted, w.ordered, w.labelReady = 2, 2, true, false })
		o := w.observe()
		o.Status.Agent.Remediations = []v1alpha1.AgentRemediation{{ID: "one", State: v1alpha1.RemediationStateResetting}}
		change(&o)
		return o
	}
	tests := map[string]struct {
		observed Observed
		waits    bool
	}{
		"it resets":      {at(func(*Observed) {}), true},
		"it is about to": {at(func(o *Observed) { o.Status.Agent.Remediations[0].State = v1alpha1.RemediationStateHolding }), true},
		"no report":      {at(func(o *Observed) { o.Status.Agent.Remediations = nil }), true},
		"of another boot": {at(func(o *Observed) {
			o.Status.Agent.Remediations[0].State, o.Node.BootID = v1alpha1.RemediationStateReset, "boot-1"
		}), true},
		"the node leaves, too":     {at(func(o *Observed) { o.Wanted.Managed = false }), true},
		"the agent is not wanted":  {at(func(o *Observed) { o.Wanted.Agent = false }), true},
		"it has been reset":        {at(func(o *Observed) { o.Status.Agent.Remediations[0].State = v1alpha1.RemediationStateReset }), false},
		"the reset failed":         {at(func(o *Observed) { o.Status.Agent.Remediations[0].State = v1alpha1.RemediationStateFailed }), false},
		"the GPU is only held":     {at(func(o *Observed) { o.Spec.Remediations[0].Step = v1alpha1.OrderHold }), false},
		"it has taken its time":    {at(func(o *Observed) { o.Status.Remediations[0].Since = metav1.NewTime(now.Add(-resetTimeout)) }), false},
		"nothing is to be changed": {at(func(o *Observed) { o.Spec.Driver = desired(1) }), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := Next(test.observed)
			if waits := d.Phase == v1alpha1.PhaseUpgrading && d.Action == Wait && d.Reason == ReasonResetting; waits != test.waits {
				t.Fatalf("%+v", d)
			}
			if test.waits && (!strings.Contains(d.Message, "GPU gpu is being reset") || d.After <= 0 || d.After > resetTimeout) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestResetInAMaintenance checks that waiting for a reset does not restart the current step of a node.
func TestResetInAMaintenance(t *testing.T) {
	w := with(serving(0), func(w *world) { w.spec, w.wanted, w.ordered, w.tainted, w.entered = 2, 2, true, true, 1 })
	w.phase, w.step = v1alpha1.PhaseUpgrading, v1alpha1.StepDrain
	o := w.observe()
	o.Status.Since = metav1.NewTime(now.Add(-time.Minute))
	if d := Next(o); d.Reason != ReasonResetting || d.Step != v1alpha1.StepDrain {
		t.Errorf("%+v", d)
	}
}
