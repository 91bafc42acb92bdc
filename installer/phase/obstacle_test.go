package phase

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// unproven returns a node in service whose validation has been impossible to start for the given time.
func unproven(spent time.Duration) Observed {
	o := ready()
	o.Status.Validated, o.Node.Labels.Ready, o.Obstacle = nil, false, "exceeded quota"
	o.Status.Phase, o.Status.Reason, o.Status.Since = v1alpha1.PhaseValidating, ReasonValidating, metav1.NewTime(now.Add(-spent))
	return o
}

// claimed returns one whose validation has had a claim and no pod for the given time.
func claimed(spent time.Duration) Observed {
	o := unproven(spent)
	o.Validation = Validation{State: ValidationRunning, Since: now.Add(-spent), Begun: true}
	return o
}

// operating returns a node out of service with a pending MIG mode change, in that step for the given time.
func operating(spent time.Duration) Observed {
	o := changing()
	o.Spec.Driver, o.Spec.MIGMode, o.Drain = desired(1), v1alpha1.MIGEnabled, Drain{}
	o.Node.Labels.Agent, o.Agent.State = "", PodAbsent
	o.Status.Step, o.Status.Since = v1alpha1.StepOperate, metav1.NewTime(now.Add(-spent))
	return o
}

// TestWhatCannotBeDone checks that an action that is refused repeatedly ends in a node that reports it, and not in an endless transition to Ready.
func TestWhatCannotBeDone(t *testing.T) {
	tests := map[string]struct {
		from     Observed
		change   func(*Observed)
		phase    v1alpha1.NodePhase
		action   Action
		contains string
	}{
		"a proof has its time": {unproven(time.Minute), func(*Observed) {}, v1alpha1.PhaseValidating, Validate, ""},
		"and no more":          {unproven(time.Hour), func(*Observed) {}, v1alpha1.PhaseFailed, Validate, "exceeded quota"},
		"it is tried on, and the node stays Failed": {unproven(0), func(o *Observed) {
			o.Status.Phase, o.Status.Reason = v1alpha1.PhaseFailed, ReasonValidationTimeout
		}, v1alpha1.PhaseFailed, Validate, ""},
		"what was never refused is tried first": {unproven(time.Hour), func(o *Observed) { o.Obstacle = "" }, v1alpha1.PhaseValidating, Validate, ""},
		"a claim without its pod gets it":       {claimed(time.Minute), func(o *Observed) { o.Obstacle = "" }, v1alpha1.PhaseValidating, Validate, ""},
		"also while that is refused":            {claimed(time.Minute), func(*Observed) {}, v1alpha1.PhaseValidating, Validate, ""},
		"but not without end":                   {claimed(time.Hour), func(*Observed) {}, v1alpha1.PhaseFailed, Wait, "exceeded quota"},
		"nor with leftover objects":             {claimed(time.Minute), func(o *Observed) { o.Validation.Leftover = true }, v1alpha1.PhaseValidating, EndValidate, ""},
		"a driver that cannot be proven goes back": {unproven(time.Hour), func(o *Observed) {
			o.Status.LastGoodDriver = desired(2)
		}, v1alpha1.PhaseDriverInstalling, RollBack, "exceeded quota"},
		"an operation has its time":  {operating(time.Minute), func(o *Observed) { o.Obstacle = "denied" }, v1alpha1.PhaseUpgrading, Operate, ""},
		"and is given up":            {operating(2 * time.Hour), func(o *Observed) { o.Obstacle = "denied" }, v1alpha1.PhaseUpgrading, RollBack, "denied"},
		"one that was never refused": {operating(2 * time.Hour), func(*Observed) {}, v1alpha1.PhaseUpgrading, Operate, ""},
		"one for another mode is ended": {operating(0), func(o *Observed) {
			o.Operation = Pod{State: PodSucceeded, Barrier: string(v1alpha1.MIGDisabled)}
		}, v1alpha1.PhaseUpgrading, EndOperate, ""},
		"and does not count, be it that it failed": {operating(0), func(o *Observed) {
			o.Operation = Pod{State: PodFailed, Barrier: string(v1alpha1.MIGDisabled)}
		}, v1alpha1.PhaseUpgrading, EndOperate, ""},
		"nor once the agent is back": {operating(0), func(o *Observed) {
			o.Operation = Pod{State: PodSucceeded, Barrier: string(v1alpha1.MIGDisabled)}
			o.Node.Labels.Agent, o.Agent.State, o.Status.Step = "default", PodReady, v1alpha1.StepStart
		}, v1alpha1.PhaseUpgrading, EndOperate, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.change(&test.from)
			d := Next(test.from)
			if d.Phase != test.phase || d.Action != test.action || !strings.Contains(d.Message, test.contains) {
				t.Errorf("decided %s %s: %q, want %s %s: …%s…", d.Phase, d.Action, d.Message, test.phase, test.action, test.contains)
			}
		})
	}
}
