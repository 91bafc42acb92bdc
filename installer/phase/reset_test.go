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

// TestMonitoringLeavesForTheMIGMode checks that monitoring leaves a node in service while the agent requests it, and returns when it does not.
func TestMonitoringLeavesForTheMIGMode(t *testing.T) {
	const message = "refused 10 times: end dcgm-exporter (4711)"
	refused := []v1alpha1.BusyGPU{{GPU: "gpu-0000-3b-00-0", State: v1alpha1.BusyRefused, Message: message}}
	pausing := []v1alpha1.BusyGPU{{GPU: "gpu-0000-3b-00-0", State: v1alpha1.BusyPausingMonitoring}}
	for name, test := range map[string]struct {
		busy        []v1alpha1.BusyGPU
		ready, want bool
		boot        string
		condition   string
	}{
		"it leaves":                     {busy: pausing, ready: true, want: false},
		"it stays away":                 {busy: pausing, ready: false, want: false},
		"it returns":                    {ready: false, want: true},
		"it returns after ten refusals": {busy: refused, ready: false, want: true, condition: "gpu-0000-3b-00-0: " + message},
		"a request of another boot":     {busy: pausing, ready: true, want: true, boot: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			w := with(serving(0), func(w *world) { w.labelReady = test.ready })
			o := w.observe()
			o.Status.Agent.BusyGPUs = test.busy
			if test.boot != "" {
				o.Status.Agent.BootID = test.boot
			}
			d := Next(o)
			ready := o.Node.Labels.Ready
			if d.Action == Place {
				ready = d.Labels.Ready
			}
			if ready != test.want {
				t.Errorf("%+v, want the label ready %t", d, test.want)
			}
			got := ""
			for _, c := range d.Conditions {
				if c.Type == v1alpha1.ConditionDriverRefuses && c.Met {
					got = c.Message
				}
			}
			if got != test.condition {
				t.Errorf("condition DriverRefuses %q, want %q", got, test.condition)
			}
		})
	}
}

// TestAgentThatCannotUseTheDriver checks that the reason of an agent that runs and is not ready, for example because the driver's image lacks a library, is
// in the message of the phase and of the condition.
func TestAgentThatCannotUseTheDriver(t *testing.T) {
	const problem = "refresh the common CDI spec: /run/nvidia/driver: no libcuda.so.580.65.06"
	w := with(serving(0), func(w *world) { w.labelReady = false })
	o := w.observe()
	o.Status.Phase, o.Status.Validated = v1alpha1.PhaseToolkitReady, nil
	o.Status.Since = metav1.NewTime(now.Add(-time.Second))
	o.Status.Agent.Ready, o.Status.Agent.Message = false, problem
	d := Next(o)
	if d.Phase != v1alpha1.PhaseToolkitReady || d.Reason != ReasonAgentStarting || !strings.HasSuffix(d.Message, ": "+problem) {
		t.Errorf("at first: %+v", d)
	}
	for _, c := range d.Conditions {
		if c.Type == v1alpha1.ConditionAgentValidated && (c.Met || !strings.Contains(c.Message, problem)) {
			t.Errorf("condition %+v", c)
		}
	}
	o.Status.Since = metav1.NewTime(now.Add(-agentTimeout))
	if d := Next(o); d.Phase != v1alpha1.PhaseFailed || d.Reason != ReasonAgentFailed || !strings.HasSuffix(d.Message, ": "+problem) {
		t.Errorf("after the timeout: %+v", d)
	}
}
