package remediation

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

func fault(r gpu.Remedy, device string) v1alpha1.GPUFault {
	return v1alpha1.GPUFault{
		GPU: "gpu-a", UUID: "GPU-1", Device: device, Signal: "xid", XID: 95, Severity: "Fatal", Remedy: r.String(), Since: metav1.NewTime(now.Add(-time.Minute)),
	}
}

// faulted returns a GPU that needs a reset, on a node that is otherwise healthy.
func faulted() Observed {
	return Observed{
		Now: now, GPU: "gpu-a", BootID: "boot", AgentReports: true, Faults: []v1alpha1.GPUFault{fault(gpu.Reset, "")}, Granted: true,
		Policy: Policy{Mode: v1alpha1.RemediationAct, Attempts: 2, Reboot: true, Validates: true, DrainTimeout: time.Minute, ValidateTimeout: time.Minute},
	}
}

// TestMessages checks that messages name the planned action, its cost, and what prevents it.
func TestMessages(t *testing.T) {
	at := func(step v1alpha1.RemediationStep, reason string, change func(o *Observed)) Observed {
		o := faulted()
		o.Status = &v1alpha1.RemediationStatus{GPU: o.GPU, Step: step, Reason: reason, ID: "one", Since: metav1.NewTime(now.Add(-time.Hour)), Faults: []string{"XID 95"}}
		o.Order = &v1alpha1.Remediation{ID: "one", GPU: o.GPU, Step: v1alpha1.OrderHold}
		o.Agent = &v1alpha1.AgentRemediation{ID: "one", State: v1alpha1.RemediationStateHolding, PreparedClaims: 1}
		change(&o)
		return o
	}
	tests := map[string]struct {
		observed Observed
		step     v1alpha1.RemediationStep
		reason   string
		contains []string
	}{
		"suggest": {
			func() Observed {
				o := faulted()
				o.Policy.Mode, o.Drain.Holders = v1alpha1.RemediationSuggest, []string{"a/b", "c/d"}
				return o
			}(),
			v1alpha1.RemediationStepSuggested, ReasonSuggested, []string{"XID 95", "reset", "2 pods would be evicted: a/b, c/d"},
		},
		"suggest, beyond a reset": {
			func() Observed {
				o := faulted()
				o.Policy.Mode, o.Faults = v1alpha1.RemediationSuggest, []v1alpha1.GPUFault{fault(gpu.Reboot, "")}
				return o
			}(),
			v1alpha1.RemediationStepSuggested, ReasonSuggested, []string{"a reboot of the node would be requested"},
		},
		"paused": {
			func() Observed { o := faulted(); o.Paused = "GPUNode n"; return o }(),
			v1alpha1.RemediationStepWaiting, ReasonPaused, []string{"paused by an annotation: GPUNode n"},
		},
		"budget": {func() Observed { o := faulted(); o.Granted = false; return o }(), v1alpha1.RemediationStepWaiting, ReasonBudgetExhausted, []string{"maxParallel"}},
		"drain blocked": {
			at(v1alpha1.RemediationStepDrain, ReasonDraining, func(o *Observed) {
				o.Drain.Holders = []string{"a/b"}
				o.Drain.Blocked = []phase.BlockedPod{{Name: "a/b", Reason: "its budget allows none"}}
			}),
			v1alpha1.RemediationStepRestore, ReasonDrainBlocked, []string{"a/b (its budget allows none)"},
		},
		"prepared without pods": {
			at(v1alpha1.RemediationStepDrain, ReasonDraining, func(*Observed) {}), v1alpha1.RemediationStepRestore, ReasonDrainBlocked, []string{"1 claims are still prepared"},
		},
		"monitoring stays": {
			at(v1alpha1.RemediationStepReset, ReasonRemovingMonitors, func(o *Observed) { o.Monitored = true }),
			v1alpha1.RemediationStepRestore, ReasonMonitorsNotRemoved, []string{"monitoring"},
		},
		"a GPU unknown to the agent": {
			at(v1alpha1.RemediationStepHold, ReasonHolding, func(o *Observed) { o.Agent.State, o.Agent.Message = v1alpha1.RemediationStateFailed, "no such GPU" }),
			v1alpha1.RemediationStepRestore, ReasonHoldFailed, []string{"no such GPU"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := Next(test.observed).Status
			if s == nil || s.Step != test.step || s.Reason != test.reason {
				t.Fatalf("status %+v, want %s %s", s, test.step, test.reason)
			}
			for _, part := range test.contains {
				if !strings.Contains(s.Message, part) {
					t.Errorf("message %q lacks %q", s.Message, part)
				}
			}
		})
	}
}

// TestRest checks that the backoff grows after each failed attempt.
func TestRest(t *testing.T) {
	failed := v1alpha1.RemediationRecord{Outcome: v1alpha1.OutcomeFailed, Message: "blocked", Ended: metav1.NewTime(now)}
	for n, want := range map[int]time.Duration{1: 10 * time.Minute, 2: 20 * time.Minute, 3: 40 * time.Minute, 12: 6 * time.Hour} {
		o := faulted()
		for range n {
			o.History = append(o.History, failed)
		}
		d := Next(o)
		if d.Status.Reason != ReasonBackoff || d.After != want || !strings.Contains(d.Status.Message, "blocked") {
			t.Errorf("after %d failures: %s for %s (%s), want %s", n, d.Status.Reason, d.After, d.Status.Message, want)
		}
		o.Now = now.Add(want)
		if d := Next(o); d.Action != Direct {
			t.Errorf("after %d failures and %s: %s %+v, want another attempt", n, want, d.Action, d.Status)
		}
	}
}

// TestComesBack checks that a fault that returns within a day counts as the same, and that one that returns after a reboot needs an administrator.
func TestComesBack(t *testing.T) {
	record := func(ago time.Duration, attempts int32, boot string) v1alpha1.RemediationRecord {
		return v1alpha1.RemediationRecord{
			Outcome: v1alpha1.OutcomeRecovered, Faults: []string{"XID 95"}, Attempts: attempts, BootID: boot, Ended: metav1.NewTime(now.Add(-ago)),
		}
	}
	tests := map[string]struct {
		history []v1alpha1.RemediationRecord
		want    v1alpha1.RemediationStep
	}{
		"once":                   {[]v1alpha1.RemediationRecord{record(time.Hour, 1, "")}, v1alpha1.RemediationStepHold},
		"twice":                  {[]v1alpha1.RemediationRecord{record(time.Hour, 1, ""), record(2*time.Hour, 1, "")}, v1alpha1.RemediationStepRebootRequested},
		"twice, long ago":        {[]v1alpha1.RemediationRecord{record(time.Hour, 1, ""), record(25*time.Hour, 1, "")}, v1alpha1.RemediationStepHold},
		"twice and by a reboot":  {[]v1alpha1.RemediationRecord{record(time.Minute, 2, "b"), record(time.Hour, 1, "")}, v1alpha1.RemediationStepReplace},
		"twice, no reboot since": {[]v1alpha1.RemediationRecord{record(time.Minute, 2, "boot"), record(time.Hour, 1, "")}, v1alpha1.RemediationStepRebootRequested},
		"another fault":          {[]v1alpha1.RemediationRecord{{Outcome: v1alpha1.OutcomeRecovered, Faults: []string{"XID 48"}, Attempts: 5, Ended: metav1.NewTime(now)}}, v1alpha1.RemediationStepHold},
		"programs ended it":      {[]v1alpha1.RemediationRecord{record(time.Hour, 0, ""), record(time.Hour, 0, "")}, v1alpha1.RemediationStepHold},
		"one that was not ended": {[]v1alpha1.RemediationRecord{{Outcome: v1alpha1.OutcomeStopped, Faults: []string{"XID 95"}, Attempts: 2, Ended: metav1.NewTime(now)}}, v1alpha1.RemediationStepHold},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := faulted()
			o.History = test.history
			if d := Next(o); d.Status == nil || d.Status.Step != test.want {
				t.Errorf("status %+v, want %s", d.Status, test.want)
			}
		})
	}
}

// TestHeat checks that a fault that ends by itself and outlasts a reset causes neither another reset nor a reboot.
func TestHeat(t *testing.T) {
	o := faulted()
	heat := fault(gpu.Wait, "")
	heat.Signal = "heat"
	o.Faults = []v1alpha1.GPUFault{heat}
	o.Order = &v1alpha1.Remediation{ID: "one", GPU: o.GPU, Step: v1alpha1.OrderReset}
	o.Agent = &v1alpha1.AgentRemediation{ID: "one", State: v1alpha1.RemediationStateReset}
	o.Status = &v1alpha1.RemediationStatus{
		GPU: o.GPU, Step: v1alpha1.RemediationStepReset, Reason: ReasonCheckingFaults, ID: "one", Attempts: 1, Since: metav1.NewTime(now), Faults: []string{"XID 95", "heat"},
	}
	if d := Next(o); d.Status.Reason != ReasonCheckingFaults || d.Action != Wait {
		t.Errorf("at once: %+v %s, want to look a while", d.Status, d.Action)
	}
	o.Now = now.Add(o.Policy.ValidateTimeout)
	if d := Next(o); d.Status.Step != v1alpha1.RemediationStepValidate || d.Status.Attempts != 1 || d.Order.Step != v1alpha1.OrderValidate {
		t.Errorf("later: %+v %s, want a proof", d.Status, d.Action)
	}
}

// TestUnproven checks that a GPU that waits for an administrator is not released because its validation could not run; one recovered by a reset or
// reboot is.
func TestUnproven(t *testing.T) {
	for requestedBoot, want := range map[string]v1alpha1.RemediationStep{"": v1alpha1.RemediationStepRestore, "boot": v1alpha1.RemediationStepRebootRequested, "one before": v1alpha1.RemediationStepRestore} {
		o := faulted()
		o.Faults = nil
		o.Order = &v1alpha1.Remediation{ID: "one", GPU: o.GPU, Step: v1alpha1.OrderValidate}
		o.Status = &v1alpha1.RemediationStatus{
			GPU: o.GPU, Step: v1alpha1.RemediationStepValidate, Reason: ReasonValidating, ID: "one", Since: metav1.NewTime(now.Add(-time.Hour)), BootID: requestedBoot,
		}
		o.Obstacle = "the API server refuses it"
		if d := Next(o); d.Status.Step != want || !strings.Contains(d.Status.Message, o.Obstacle) {
			t.Errorf("requested in boot %q: %+v, want %s", requestedBoot, d.Status, want)
		}
	}
}

// TestBegin checks that the status has the ID, that the order repeats it, and that the order has a reason for users.
func TestBegin(t *testing.T) {
	d := Next(faulted())
	if d.Action != Direct || d.Order.ID == "" || d.Order.ID != d.Status.ID || d.Order.GPU != "gpu-a" || d.Order.Step != v1alpha1.OrderHold || d.Order.Since.IsZero() {
		t.Fatalf("decision %+v", d)
	}
	if !strings.Contains(d.Order.Reason, "XID 95") {
		t.Errorf("reason %q does not name the fault", d.Order.Reason)
	}
	again := faulted()
	again.Now, again.Status = now.Add(time.Second), d.Status
	if e := Next(again); e.Action != Direct || e.Order != d.Order {
		t.Errorf("after a crash %+v, want %+v again", e.Order, d.Order)
	}
	long := faulted()
	long.GPU = strings.Repeat("x", 64)
	if id := Next(long).Order.ID; len(id) > 63 {
		t.Errorf("ID %q is longer than a label", id)
	}
}

func TestGrant(t *testing.T) {
	c := func(name string, begun bool, s gpu.Severity, ago time.Duration) Candidate {
		return Candidate{Key{"node", name}, begun, s, now.Add(-ago)}
	}
	tests := map[string]struct {
		candidates []Candidate
		limit      int
		want       []string
	}{
		"none":                          {nil, 1, nil},
		"the worst first":               {[]Candidate{c("a", false, gpu.Critical, time.Hour), c("b", false, gpu.Fatal, 0)}, 1, []string{"b"}},
		"the oldest fault first":        {[]Candidate{c("a", false, gpu.Fatal, 0), c("b", false, gpu.Fatal, time.Hour)}, 1, []string{"b"}},
		"then by name":                  {[]Candidate{c("b", false, gpu.Fatal, 0), c("a", false, gpu.Fatal, 0)}, 1, []string{"a"}},
		"who has begun keeps its place": {[]Candidate{c("a", false, gpu.Fatal, 0), c("b", true, gpu.Critical, 0)}, 1, []string{"b"}},
		"even beyond a smaller budget":  {[]Candidate{c("a", true, gpu.Fatal, 0), c("b", true, gpu.Fatal, 0), c("c", false, gpu.Fatal, 0)}, 1, []string{"a", "b"}},
		"as many as may":                {[]Candidate{c("a", true, gpu.Fatal, 0), c("b", false, gpu.Critical, 0), c("c", false, gpu.Fatal, 0)}, 2, []string{"a", "c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := map[Key]bool{}
			for _, gpuName := range test.want {
				want[Key{"node", gpuName}] = true
			}
			if diff := cmp.Diff(want, Grant(test.candidates, test.limit)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCandidate checks that only a GPU that would start requests a place in the budget, and one that has started keeps it.
func TestCandidate(t *testing.T) {
	begun := func(step v1alpha1.RemediationStep, boot string) Observed {
		o := faulted()
		o.Status = &v1alpha1.RemediationStatus{GPU: o.GPU, Step: step, ID: "one", BootID: boot}
		o.Order = &v1alpha1.Remediation{ID: "one", GPU: o.GPU, Step: v1alpha1.OrderHold}
		return o
	}
	busy, reboot, lost := faulted(), faulted(), begun(v1alpha1.RemediationStepHold, "")
	busy.Busy, reboot.Faults, lost.Status = "the driver changes", []v1alpha1.GPUFault{fault(gpu.Reboot, "")}, nil
	tests := map[string]struct {
		observed         Observed
		requests, begins bool
	}{
		"faulted":                       {faulted(), true, false},
		"well":                          {Observed{Now: now, AgentReports: true}, false, false},
		"a node that is being upgraded": {busy, false, false},
		"beyond a reset":                {reboot, false, false},
		"begun":                         {begun(v1alpha1.RemediationStepDrain, ""), true, true},
		"begun, status lost":            {lost, true, true},
		"waits for a reboot":            {begun(v1alpha1.RemediationStepRebootRequested, "boot"), false, false},
		"proven after a reboot":         {begun(v1alpha1.RemediationStepValidate, "boot-0"), false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.observed.Granted = false
			c, requests := test.observed.Candidate("node")
			if requests != test.requests || c.Begun != test.begins {
				t.Errorf("requests %t begun %t, want %t %t", requests, c.Begun, test.requests, test.begins)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	warning := fault(gpu.Wait, "")
	warning.Severity = "Warning"
	requests := v1alpha1.RemediationStatus{GPU: "gpu-a", Step: v1alpha1.RemediationStepRebootRequested, Reason: ReasonResetFailed, Message: "the reset failed"}
	done := requests
	done.Reason = ReasonRebooted
	healthy := phase.Condition{Type: v1alpha1.ConditionGPUsHealthy, Met: true, Reason: ReasonNoFaults}
	calm := phase.Condition{Type: v1alpha1.ConditionRebootRequired, Reason: ReasonNotRequested}
	tests := map[string]struct {
		reports  bool
		faults   []v1alpha1.GPUFault
		remedies []v1alpha1.RemediationStatus
		want     []phase.Condition
	}{
		"well":               {true, []v1alpha1.GPUFault{warning}, nil, []phase.Condition{healthy, calm}},
		"an agent is silent": {false, []v1alpha1.GPUFault{fault(gpu.Reset, "")}, nil, []phase.Condition{calm}},
		"faulted": {true, []v1alpha1.GPUFault{fault(gpu.Reset, ""), warning}, []v1alpha1.RemediationStatus{requests}, []phase.Condition{
			{Type: v1alpha1.ConditionGPUsHealthy, Reason: ReasonFaults, Message: "gpu-a XID 95"},
			{Type: v1alpha1.ConditionRebootRequired, Met: true, Reason: ReasonRequested, Message: "gpu-a: the reset failed"},
		}},
		"rebooted": {true, nil, []v1alpha1.RemediationStatus{done}, []phase.Condition{healthy, calm}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Conditions(test.reports, test.faults, test.remedies)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReach checks that neighbors of a MIG device whose programs must end are unaffected; a reset needs the whole GPU.
func TestReach(t *testing.T) {
	tests := map[string]struct {
		faults []v1alpha1.GPUFault
		want   []string
	}{
		"one device":          {[]v1alpha1.GPUFault{fault(gpu.Restart, "mig-1"), fault(gpu.Restart, "mig-1"), fault(gpu.Restart, "mig-0")}, []string{"mig-0", "mig-1"}},
		"the whole GPU":       {[]v1alpha1.GPUFault{fault(gpu.Restart, "mig-1"), fault(gpu.Restart, "")}, nil},
		"a reset of a device": {[]v1alpha1.GPUFault{fault(gpu.Restart, "mig-1"), fault(gpu.Reset, "mig-0")}, nil},
		"what passes":         {[]v1alpha1.GPUFault{fault(gpu.Restart, "mig-1"), fault(gpu.Wait, "")}, []string{"mig-1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Reach(test.faults)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
