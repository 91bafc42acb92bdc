package remediation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// draining returns a GPU whose pod must leave.
func draining() Observed {
	o := faulted()
	o.Status = &v1alpha1.RemediationStatus{
		GPU: o.GPU, Step: v1alpha1.RemediationStepDrain, Reason: ReasonDraining, ID: "one", Since: metav1.NewTime(now.Add(-10 * time.Second)), Faults: []string{"XID 95"},
	}
	o.Order = &v1alpha1.Remediation{ID: "one", GPU: o.GPU, Step: v1alpha1.OrderHold}
	o.Agent = &v1alpha1.AgentRemediation{ID: "one", State: v1alpha1.RemediationStateHolding, PreparedClaims: 1}
	o.Drain.Holders = []string{"a/b"}
	return o
}

// TestNoEvictionWhileHoldersAreUncertain checks that no pod is evicted while holders or faults are uncertain, and that the drain timeout keeps running.
func TestNoEvictionWhileHoldersAreUncertain(t *testing.T) {
	for name, test := range map[string]struct {
		change func(o *Observed)
		want   Action
	}{
		"all is known": {func(*Observed) {}, Evict},
		"a pod stays": {func(o *Observed) {
			o.Drain.Holders = append(o.Drain.Holders, "a/c")
			o.Drain.Staying = []phase.BlockedPod{{Name: "a/c"}}
		}, Wait},
		"a claim is not readable":    {func(o *Observed) { o.Drain.Unreadable = true }, Wait},
		"the agent is away":          {func(o *Observed) { o.AgentReports = false }, Wait},
		"the node has just rebooted": {func(o *Observed) { o.AgentReports, o.Faults, o.Agent, o.BootID = false, nil, nil, "next" }, Wait},
		"an agent is away from a device": {func(o *Observed) {
			o.Faults, o.Status.Reason, o.AgentReports = []v1alpha1.GPUFault{fault(gpu.Restart, "mig-1")}, ReasonRestarting, false
		}, Wait},
	} {
		t.Run(name, func(t *testing.T) {
			o := draining()
			test.change(&o)
			d := Next(o)
			if d.Action != test.want || d.Status.Step != v1alpha1.RemediationStepDrain || d.Status.Since != o.Status.Since {
				t.Errorf("%s, %+v, want %s", d.Action, d.Status, test.want)
			}
			o.Now = now.Add(o.Policy.DrainTimeout)
			if d := Next(o); d.Status.Step != v1alpha1.RemediationStepRestore {
				t.Errorf("when the time is over: %s, %+v", d.Action, d.Status)
			}
		})
	}
}

// TestResets checks that faults that end with their programs do not affect the GPUs that are reset together.
func TestResets(t *testing.T) {
	for r, want := range map[gpu.Remedy]bool{gpu.Wait: false, gpu.Restart: false, gpu.Reset: true, gpu.Reboot: true} {
		if got := Resets([]v1alpha1.GPUFault{fault(gpu.Wait, ""), fault(r, "")}); got != want {
			t.Errorf("%s: %t, want %t", r, got, want)
		}
	}
}

// TestOrderThatCannotBeWritten checks that a failing write of the order ends the attempt in time and is reported.
func TestOrderThatCannotBeWritten(t *testing.T) {
	o := draining()
	o.Order, o.Agent, o.Obstacle = nil, nil, "a webhook refuses it"
	o.Status.Step, o.Status.Reason = v1alpha1.RemediationStepHold, ReasonHolding
	if d := Next(o); d.Action != Direct {
		t.Errorf("at once: %s %+v", d.Action, d.Status)
	}
	o.Now = now.Add(agentTimeout)
	d := Next(o)
	if d.Action != Release || d.Status.Reason != ReasonHoldFailed || !strings.Contains(d.Status.Message, o.Obstacle) {
		t.Errorf("later: %s %+v", d.Action, d.Status)
	}
}

// TestGPUOpenedByAnotherProcess checks that a reset that never started costs no attempt and no reboot and that the message names the process; one that
// may have started counts.
func TestGPUOpenedByAnotherProcess(t *testing.T) {
	o := draining()
	o.Drain.Holders = nil
	o.Status.Step, o.Status.Reason, o.Status.Attempts = v1alpha1.RemediationStepReset, ReasonResetOrdered, 1
	o.Order.Step = v1alpha1.OrderReset
	o.Agent.PreparedClaims, o.Agent.Message = 0, "process 4711 has it open"
	if d := Next(o); d.Action != Wait || !strings.Contains(d.Status.Message, "4711") {
		t.Errorf("at once: %s %+v", d.Action, d.Status)
	}
	o.Now = now.Add(resetTimeout)
	d := Next(o)
	if d.Action != Release || d.Record == nil || d.Record.Outcome != v1alpha1.OutcomeFailed || d.Record.Reason != ReasonGPUBusy || d.Record.Attempts != 0 || !strings.Contains(d.Record.Message, "4711") {
		t.Errorf("later: %s %+v", d.Action, d.Record)
	}
	o.Agent = nil
	if d := Next(o); d.Action == Release || d.Status.Step != v1alpha1.RemediationStepRebootRequested || d.Status.Reason != ReasonAgentNotResponding || d.Status.Attempts != 1 {
		t.Errorf("of an agent that is silent: %s %+v", d.Action, d.Status)
	}
}

// TestResetThatBeginsLate checks that a started reset has its full timeout, however late it started, and that an agent restart does not extend it.
func TestResetThatBeginsLate(t *testing.T) {
	o := draining()
	o.Drain.Holders = nil
	o.Status.Step, o.Status.Reason, o.Status.Attempts = v1alpha1.RemediationStepReset, ReasonResetOrdered, 1
	o.Order.Step = v1alpha1.OrderReset
	o.Agent.PreparedClaims, o.Agent.State = 0, v1alpha1.RemediationStateResetting
	o.Now = now.Add(resetTimeout - time.Second)
	began := Next(o)
	if began.Status.Reason != ReasonResetting || !began.Status.Since.Time.Equal(o.Now) {
		t.Fatalf("when it begins: %s %+v", began.Action, began.Status)
	}
	o.Status = began.Status
	for _, reports := range []bool{false, true} {
		o.Now, o.AgentReports = o.Now.Add(time.Minute), reports
		if d := Next(o); d.Action != Wait || d.Status.Since != began.Status.Since || d.Status.Step != v1alpha1.RemediationStepReset {
			t.Fatalf("the agent speaks: %t, and %s %+v", reports, d.Action, d.Status)
		}
	}
	o.Now = began.Status.Since.Add(resetTimeout)
	if d := Next(o); d.Status.Reason != ReasonResetTimeout {
		t.Errorf("when it hangs: %s %+v", d.Action, d.Status)
	}
}

// TestWhatWasResetStaysHeld checks that an aborted attempt releases a GPU that was not reset, and holds one that was reset until a validation or a
// reboot.
func TestWhatWasResetStaysHeld(t *testing.T) {
	for reason, stuck := range map[string]func(o *Observed){
		ReasonMonitorsNotRemoved: func(o *Observed) { o.Monitored = true },
		ReasonDrainBlocked:       func(o *Observed) { o.Agent.PreparedClaims = 1 },
		ReasonAgentNotResponding: func(o *Observed) { o.Agent, o.AgentReports = nil, false },
	} {
		o := draining()
		o.Drain.Holders = nil
		o.Status.Step, o.Status.Reason = v1alpha1.RemediationStepReset, ReasonRemovingMonitors
		o.Agent.PreparedClaims, o.Now = 0, now.Add(agentTimeout)
		stuck(&o)
		if d := Next(o); d.Action != Release || d.Status.Reason != reason || d.Record.Reason != reason {
			t.Errorf("%s: a GPU that was not reset: %s %+v", reason, d.Action, d.Status)
		}
		o.Status.Attempts = 1
		d := Next(o)
		if d.Action == Release || d.Status.Step != v1alpha1.RemediationStepRebootRequested || d.Status.Reason != reason {
			t.Errorf("%s: a GPU that was reset: %s %+v", reason, d.Action, d.Status)
		}
		o.Paused = "GPUNode n"
		if d := Next(o); d.Action == Release || d.Status.Step != v1alpha1.RemediationStepWaiting {
			t.Errorf("%s: a GPU that was reset, while paused: %s %+v", reason, d.Action, d.Status)
		}
		o.Paused, o.Status = "", d.Status
		o.Faults, o.AgentReports, o.Monitored, o.Agent = nil, true, false, &v1alpha1.AgentRemediation{ID: "one", State: v1alpha1.RemediationStateHolding}
		if d := Next(o); d.Action != Direct || d.Order.Step != v1alpha1.OrderValidate {
			t.Errorf("%s: a GPU that is well after all: %s %+v", reason, d.Action, d.Status)
		}
	}
}

// TestWarningAfterAReset checks a GPU with a requested reboot and only faults that end by themselves: it is validated first if it was reset, and
// released if it was not.
func TestWarningAfterAReset(t *testing.T) {
	o := draining()
	o.Drain.Holders, o.Agent.PreparedClaims = nil, 0
	o.Faults[0].XID, o.Faults[0].Remedy = 13, gpu.Wait.String()
	o.Status.Step, o.Status.Reason, o.Status.BootID = v1alpha1.RemediationStepRebootRequested, ReasonResetInsufficient, o.BootID
	if d := Next(o); d.Action != Release || d.Status.Reason != ReasonRecovered {
		t.Errorf("not reset: %s %+v", d.Action, d.Status)
	}
	o.Status.Attempts = 1
	if d := Next(o); d.Action != Direct || d.Order.Step != v1alpha1.OrderValidate {
		t.Errorf("reset: %s %+v", d.Action, d.Status)
	}
}

// TestAgentSilentInTheProof checks that a GPU without a current agent status is not released as one whose validation could not run.
func TestAgentSilentInTheProof(t *testing.T) {
	o := draining()
	o.Drain.Holders, o.Faults, o.Agent, o.AgentReports = nil, nil, nil, false
	o.Status.Step, o.Status.Reason, o.Status.Attempts = v1alpha1.RemediationStepValidate, ReasonValidating, 1
	o.Order.Step, o.Validation = v1alpha1.OrderValidate, phase.Validation{State: phase.ValidationRunning}
	if d := Next(o); d.Action != Wait || d.After == 0 {
		t.Errorf("at once: %s %+v", d.Action, d.Status)
	}
	o.Now = now.Add(agentTimeout)
	for _, validates := range []bool{true, false} {
		o.Policy.Validates = validates
		if d := Next(o); d.Status.Step != v1alpha1.RemediationStepRebootRequested || d.Status.Reason != ReasonAgentNotResponding {
			t.Errorf("later: %s %+v", d.Action, d.Status)
		}
	}
}

// TestPreparedClaimsAreNoErrorAtFirst checks that claims that briefly outlive their pods are not reported as an error of the agent, and lasting ones are.
func TestPreparedClaimsAreNoErrorAtFirst(t *testing.T) {
	const accusation = "and no pod uses them"
	o := draining()
	o.Drain.Holders = nil
	if d := Next(o); d.Action != Wait || strings.Contains(d.Status.Message, accusation) || !strings.Contains(d.Status.Message, "not unprepared yet: 1") {
		t.Errorf("at once: %s %+v", d.Action, d.Status)
	}
	o.Now = now.Add(o.Policy.DrainTimeout)
	if d := Next(o); d.Action != Release || !strings.Contains(d.Record.Message, accusation) {
		t.Errorf("later: %s %+v", d.Action, d.Status)
	}
}

// TestDrainHasOneTime checks that a fault that comes and goes, and with it the remedy, does not extend the drain timeout.
func TestDrainHasOneTime(t *testing.T) {
	o := draining()
	o.Policy.DrainTimeout = 10 * time.Minute
	began := o.Status.Since
	for n := 1; n < 10; n++ {
		need := gpu.Reset
		if n%2 == 1 {
			need = gpu.Restart
		}
		o.Now, o.Faults = began.Add(time.Duration(n)*time.Minute), []v1alpha1.GPUFault{fault(need, "")}
		d := Next(o)
		if d.Status.Step != v1alpha1.RemediationStepDrain || d.Status.Since != began {
			t.Fatalf("after %d minutes: %s %+v", n, d.Action, d.Status)
		}
		o.Status = d.Status
	}
	o.Now = began.Add(o.Policy.DrainTimeout)
	if d := Next(o); d.Status.Reason != ReasonDrainBlocked {
		t.Errorf("when the time is over: %s %+v", d.Action, d.Status)
	}
}

// TestRestAfterAMaintenance checks that a flapping node increases the backoff, and that stops by a person in between do not reset it.
func TestRestAfterAMaintenance(t *testing.T) {
	o := faulted()
	o.History = []v1alpha1.RemediationRecord{{Outcome: v1alpha1.OutcomeStopped, Reason: ReasonPaused, Ended: metav1.NewTime(now)}}
	if d := Next(o); d.Action != Direct {
		t.Errorf("after a pause: %s %+v", d.Action, d.Status)
	}
	for n, want := range []time.Duration{backoffBase, 2 * backoffBase, 4 * backoffBase} {
		o.History = append(o.History, v1alpha1.RemediationRecord{Outcome: v1alpha1.OutcomeStopped, Reason: ReasonNodeBusy, Message: "not Ready", Ended: metav1.NewTime(now)})
		if d := Next(o); d.Status.Reason != ReasonBackoff || d.After != want || !strings.Contains(d.Status.Message, "not Ready") {
			t.Errorf("after %d times: %s for %s, want %s", n+1, d.Status.Reason, d.After, want)
		}
	}
}

// TestClaimWithoutPod checks that a validation continues with its existing claim, and ends when its pod is refused for the whole timeout.
func TestClaimWithoutPod(t *testing.T) {
	o := draining()
	o.Drain.Holders, o.Faults = nil, nil
	o.Status.Step, o.Status.Reason, o.Status.Attempts = v1alpha1.RemediationStepValidate, ReasonValidating, 1
	o.Order.Step, o.Obstacle = v1alpha1.OrderValidate, "exceeded quota"
	o.Validation = phase.Validation{State: phase.ValidationRunning, Begun: true}
	if d := Next(o); d.Action != Validate {
		t.Errorf("at once: %s %+v", d.Action, d.Status)
	}
	o.Now = now.Add(o.Policy.ValidateTimeout)
	if d := Next(o); d.Status.Reason != ReasonNotValidated || !strings.Contains(d.Status.Message, "exceeded quota") {
		t.Errorf("later: %s %+v", d.Action, d.Status)
	}
}
